package main

import "time"

// wallNow is the wall clock, which signatures of requests to a name server carry.
func wallNow() time.Time { return time.Now() }
