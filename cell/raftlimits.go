package cell

// maxAppend is how many entries Raft sends to a follower in one call, within raftRPCTimeout, and stores in one
// step. 16 of 320 KiB are at most 5 MiB, one second at 40 Mbit/s. The proposer already packs entries.
const maxAppend = 16
