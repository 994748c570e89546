package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// refuseMemoryDisk refuses a directory in which fsync costs nothing: the results would not be those
// of a disk.
func refuseMemoryDisk(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory: fsync costs nothing there; name a directory on a disk with -dir", dir)
	}
	return nil
}
