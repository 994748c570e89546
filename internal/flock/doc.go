// Package flock locks files against other processes, with flock(2). A lock belongs to the open
// file: the system releases it when the file is closed, and when the process ends for any reason.
// Some systems have no such locks, Windows for one.
package flock
