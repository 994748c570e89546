package cell

import "time"

// Believe makes a replica take an election timeout past its bounds. It imitates
// one that was stopped, and has not looked at its clock since.
func (cfg *Config) Believe(election time.Duration) { cfg.beliefs = election }
