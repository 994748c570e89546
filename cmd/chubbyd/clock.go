package main

import "time"

// wallNow is the wall clock, for signatures of requests to a name server.
func wallNow() time.Time { return time.Now() }
