# Run a command; when a fatal signal comes, say where every thread is and let the command die of it.
# The exit status is the command's own: its code, or 128+n for signal n.
set confirm off
set pagination off
set width 0
set disable-randomization off
set print inferior-events off
set print thread-events off
set print frame-arguments scalars

# Signals are the command's business, as without gdb; only those that mean a crash stop it.
handle all nostop noprint pass
handle SIGINT nostop noprint pass
handle SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGSYS stop print pass

run

if $_isvoid($_exitcode) && $_isvoid($_exitsignal)
  echo \n-------- backtrace of all threads --------\n
  thread apply all -s backtrace
  echo -------- end of backtrace --------\n
  # Its own handlers, and Python's, speak now; then the signal ends it.
  handle SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGSYS nostop noprint pass
  continue
end
if $_isvoid($_exitsignal)
  quit $_exitcode
end
quit 128 + $_exitsignal
