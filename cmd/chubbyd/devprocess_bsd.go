//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing here: the end of its standard input is how a
// replica learns that its parent has died.
func dieWithParent(*syscall.SysProcAttr) {}
