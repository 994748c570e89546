// Package durable makes files and their names survive a crash of the machine. A file that is
// to have its old contents or its new ones after a crash is written under another name
// (WriteFile), renamed over the old one, and its directory synced (SyncDir).
package durable
