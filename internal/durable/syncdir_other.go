//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package durable

// SyncDir does nothing: on this system directories cannot be synced.
func SyncDir(string) error { return nil }
