// Package chubbyvault keeps the storage of HashiCorp Vault in a Chubby cell, with high availability:
// Backend is a physical.Backend and a physical.FencingHABackend of github.com/hashicorp/vault/sdk.
//
//	backend, err := chubbyvault.New(ctx, chubbyvault.Config{Path: "/ls/local/vault"})
//	defer backend.Close(ctx)
//	err = backend.Put(ctx, &physical.Entry{Key: "core/hsm", Value: sealed})
//
// NewBackend makes one of a storage stanza. Vault links its backends, so a Vault with this one is built
// from source, with NewBackend in the map of physical backends.
//
// # What is kept where
//
// Below Config.Path there are three directories:
//
//   - data: the entry of key a/b/c is the file data/a/b/_c. What a path cannot have is escaped, %2F for
//     instance, and each path stands for one key. Directories that become empty are removed; one that is
//     left by a process that ended in the middle is not listed.
//   - chunks: values that do not fit into one file (256 KiB), in pieces. They are written under an id that no
//     other value has; then the entry's file, which names the id, is written at once. So readers get the
//     value before or the new one, and an entry stays as it was if its writer ends in the middle. What such
//     a writer leaves is removed by later writers, and by Sweep.
//   - locks: the files of LockWith, each with the value of its holder.
//
// Do not break locks below chunks by hand: a writer whose lock is broken may find its chunks removed.
//
// # The active node
//
// Vault calls RegisterActiveNodeLock when it has become the active node. From then on each write depends
// on the lock (Chubby §2.4): the cell refuses it once the lock is not held, as it applies the write, so
// that a node that was stopped and goes on writes nothing. The channel of Lock is closed before another
// node can have the lock.
//
// # Sessions
//
// A Backend has one session, opened by the first call, and another when that is lost (client.Keeper). With
// a session its locks are lost. A fail-over of the cell's master loses none; calls wait for it.
package chubbyvault
