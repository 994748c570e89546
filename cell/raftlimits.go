package cell

// maxAppend is how many entries Raft sends to a follower in one call, which has to
// be over within raftRPCTimeout and is stored in one step: 16 of 320 KiB are
// 5 MiB at most, one second for a network of 40 Mbit/s. The proposer has put
// everything into few entries already.
const maxAppend = 16

// maxLogEntry is the largest entry that a replica writes into its log: the last
// line of defence, for what is larger could not be read again. raft-wal writes
// entries of any size, and takes one above 64 MiB for damage when it reads it. An
// entry of this version is far smaller (limits.command); no entry is refused that
// an earlier version wrote and could read.
const maxLogEntry = 16 << 20
