//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sequencer

import "os"

// lockFile does nothing where there is no flock(2): see OpenFileStore.
func lockFile(*os.File) error { return nil }

// syncDirectory does nothing where directories cannot be synced.
func syncDirectory(string) error { return nil }
