// Every number of the core that tunes speed, with the measurement or the relation that it comes from. What
// refuses bytes is elsewhere (wire/limits.h), and so is what Python decides (src/byteps/tensor/tuning.py).
//
// None of them changes a result. "Not measured" is said where it is so: such a number may be changed without
// asking, and the others with figures only. Changing pieces changes the protocol: all members must agree.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps::tuning {

// ---- pieces: the unit that travels and is summed

// On one machine. Still in the caches when it is added and sent on, and long enough that waking up for it
// costs little: the fastest of 64 to 512 KiB over loopback, one and two workers on two cores (ADR 1).
constexpr size_t kPieceBytes = 384 * 1024;
// Between machines a piece must also be short on the link: it is what workers drift apart by, the least that
// waits in front of a server, and the first and last of a round travel alone. Four workers and six servers at
// 1 Gbit/s took 1.34 of the optimum with 384 KiB and 1.15 with 64 (ADR 6); 32 is for an MTU of 1500 (ADR 10).
constexpr size_t kFarPieceBytes = 32 * 1024;
// A shorter one goes over the socket even where both ends can read each other's memory: that costs two system
// calls, more than the copies it saves. Not measured around this size (ADR 5).
constexpr size_t kByAddressBytes = 16 * 1024;

// ---- how much is in flight

// To a server on this machine: two pieces, one sent while the other is summed. Of windows from 256 KiB to 16
// MB the fastest, because what is in flight stays in the caches (ADR 2).
constexpr size_t kSameMachineWindowBytes = 2 * kPieceBytes;
// To other machines a window holds what the network carried lately in this time, and two round trips: longer
// than workers of a busy job pause, shorter than a user would notice. It goes with the size of a piece: at
// 200 Mbit/s, 16 KB and 15 ms were within 1.08 of the optimum, 32 KB needed 25 ms (ADR 6).
constexpr int64_t kWindowHoldNs = 15'000'000;
// One sample of what was carried: several pieces at 100 Mbit/s, and shorter than the time above.
constexpr int64_t kWindowSampleNs = 10'000'000;
// For each link, as long as nothing was carried. Not measured; the first sample corrects it.
constexpr uint64_t kFirstWindowBytes = 1 << 20;
// Of an operation without an answer: one is sent while the other is answered. VGG-16 took 1.07 of the bound
// with two, 1.14 with four and 1.16 without such a number (ADR 6).
constexpr uint32_t kUnansweredPieces = 2;

// ---- when a server acts by itself

// How long it holds credit back for a contribution whose round is open, before it gives it on arrival: longer
// than the same piece takes from all workers through one slow link (ADR 6), or than passes between processes
// of one machine (ADR 2).
constexpr int64_t kPatienceNs = 100'000'000;
constexpr int64_t kSameMachinePatienceNs = 2'000'000;
// Between machines: how long a round is open before it asks for what is missing. 5 and 20 ms made no
// difference (ADR 6).
constexpr int64_t kWantAfterNs = 10'000'000;
// One contribution of every open round is always kept: it becomes the sum. Others that come before their turn
// (sums are made in rank order) are kept up to this much per shard, or this share of its keys, whichever is
// more; beyond it they are dropped and asked for again. Not measured: about twenty pieces on one machine.
constexpr size_t kHeldBytes = size_t{8} << 20;
constexpr double kHeldShare = 0.10;

// ---- threads

// I/O threads of one worker: more were not seen to help.
constexpr unsigned kMostIoThreads = 4;

// ---- system calls

// A frame whose payload is at least this long is read straight to its destination; shorter ones many at a
// time into a buffer. Not measured around these sizes: a copy of 16 KiB takes about as long as a call.
constexpr size_t kLargePayloadBytes = 16 * 1024;
constexpr size_t kReadBufferBytes = 4 * kLargePayloadBytes;
// Nobody is woken before so much of a payload has come: waking up costs little beside reading it, and any
// socket's buffer holds it (ADR 10).
constexpr size_t kMostToWaitForBytes = kFarPieceBytes;
// A link that has read this much lets the others of its loop have a turn.
constexpr size_t kReadBudgetBytes = 4 * kPieceBytes;
// One call sends two pieces: enough to keep the socket's buffer from running dry until the next, little
// enough that an urgent frame does not queue behind much. And as many frames: half of what the kernel takes
// at once, for each has two parts.
constexpr size_t kBatchBytes = 2 * kPieceBytes;
constexpr size_t kBatchFrames = 64;

// ---- ranks of one machine

// Of a large tensor a rank claims so much at a time: fits into the caches of a core, twice (ADR 4).
constexpr size_t kClaimBytes = 128 * 1024;
// What is summed in one go through buffers of the thread: a piece that goes to servers, and so any claim.
constexpr size_t kPartBytes = kPieceBytes;
static_assert(kClaimBytes <= kPartBytes);
// Up to this size the rank that comes last does all the work at once: waking a helper would take longer. One
// claim: nothing could be shared.
constexpr size_t kInlineBytes = kClaimBytes;
// A tensor outside the arena of up to this size goes through the arena even where ranks can read each other:
// copying it twice inside the caches is faster than having the kernel look up its pages for a single copy
// (1 MB with two ranks: 200 us instead of 260). Larger ones are copied once.
constexpr size_t kStagedBytes = 1024 * 1024;
// A freed block of the arena of at least this much gives its pages back; a smaller one is likely to be wanted
// again soon. Not measured.
constexpr size_t kReleaseBytes = size_t{1} << 20;

}  // namespace byteps::tuning
