//go:build !linux

package main

// refuseMemoryDisk cannot tell on this system.
func refuseMemoryDisk(string) error { return nil }
