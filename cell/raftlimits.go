package cell

// maxAppend is how many entries Raft sends to a follower in one call, which has to
// be over within raftRPCTimeout and is stored in one step: 16 of 320 KiB are
// 5 MiB at most, one second for a network of 40 Mbit/s. The proposer has put
// everything into few entries already.
const maxAppend = 16
