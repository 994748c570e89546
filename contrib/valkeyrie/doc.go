// Package chubbykv keeps the keys of programs that use github.com/kvtools/valkeyrie in a Chubby cell: Store
// is a store.Store of that library, with its locks.
//
//	kv, err := chubbykv.New(ctx, chubbykv.Config{Path: "/ls/local/app"})
//	defer kv.Close()
//	err = kv.Put(ctx, "config/limit", []byte("10"), nil)
//
// Programs that take a store by its name register it first; this package does not register itself:
//
//	valkeyrie.Register(chubbykv.StoreName, chubbykv.NewStore)
//	kv, err := valkeyrie.NewStore(ctx, chubbykv.StoreName, servers, &chubbykv.Config{Path: "/ls/local/app"})
//
// # Keys and values
//
// Slashes at the ends of a key, and all but one between its components, do not count: a/b, /a/b and a//b/
// are one key, which results name a/b. A key may have a value and other keys below it. IsDir has no
// meaning. A value has at most MaxValue bytes; a longer one is TooLarge.
//
// Below Config.Path there are three directories:
//
//   - data: the value of key a/b/c is the file data/a/b/_c. What a path cannot have is escaped, %2F for
//     instance, and each path stands for one key. Directories that become empty are removed.
//   - leases: an ephemeral file for each Store that has written keys with a TTL.
//   - locks: an empty file for each key that was ever locked.
//
// KVPair.LastIndex is the generation of the file's contents. The cell draws generations from one counter,
// so no value of a key ever has that of another, also if the key was deleted and created again in between:
// AtomicPut and AtomicDelete change the very value that the caller has read, or nothing.
//
// # Keys with a TTL
//
// The file of a key with a TTL names the lease of the Store that wrote it, and the key exists as long as
// that lease does: the cell removes the lease with the session of the Store, when that is closed or its
// process has failed. Without KeepAlive the Store also deletes the key when the TTL has passed since it was
// written, by the clock of this process. What is left of a key whose lease is gone is removed by the next
// call that meets it.
//
// # Sessions
//
// A Store has one session, opened by the first call, and another when that is lost (client.Keeper). With a
// session its locks and its keys with a TTL are lost. A fail-over of the cell's master loses none; calls
// wait for it.
package chubbykv
