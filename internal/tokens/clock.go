package tokens

import "time"

// wallNow is the wall clock, by which tokens begin and end everywhere.
func wallNow() time.Time { return time.Now() }
