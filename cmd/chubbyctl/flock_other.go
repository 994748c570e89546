//go:build !unix || solaris || illumos || aix

package main

import (
	"errors"
	"os"
)

// claim fails where there is no flock(2).
func claim(*os.File) error { return errors.ErrUnsupported }

// claimed reports nothing there.
func claimed(*os.File) bool { return false }
