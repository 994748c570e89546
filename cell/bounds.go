package cell

// Defaults of Config.MaxConnections and Config.MaxConnectionsPerAddress. A connection takes some 50 KB and a
// file descriptor. A process needs one for sessions and one for calls.
const (
	DefaultMaxConnections           = 40_000
	DefaultMaxConnectionsPerAddress = 4_000
)

// Rates of Config as chubbyd sets them. Calls: more than two cores serve, so that they limit only larger
// machines. Sessions and handshakes: a tenth of what two cores do, enough for a fleet that starts at once.
const (
	DefaultMaxCallsPerPrincipal       = 50_000
	DefaultMaxNewSessionsPerPrincipal = 1_000
	DefaultMaxCallsPerAddress         = 100_000
	DefaultMaxHandshakesPerAddress    = 500
)

// DefaultClientMemoryMiB has room for 130,000 parked calls, or 4,000 whole files in transit.
const DefaultClientMemoryMiB = 1 << 10

// MinClientMemoryMiB leaves a connection room for a few whole files.
const MinClientMemoryMiB = 64

func (cfg Config) checkBounds(fault func(string, ...any)) {
	if cfg.MaxConnections < 0 || cfg.MaxConnectionsPerAddress < 0 {
		fault("max-connections, max-connections-per-address: %d and %d; want positive numbers", cfg.MaxConnections, cfg.MaxConnectionsPerAddress)
	}
	if min(cfg.MaxCallsPerPrincipal, cfg.MaxNewSessionsPerPrincipal, cfg.MaxCallsPerAddress, cfg.MaxHandshakesPerAddress) < 0 {
		fault("max-calls-per-principal, max-new-sessions-per-principal, max-calls-per-address, max-handshakes-per-address: %d, %d, %d and %d; want positive numbers, or 0 for no bound",
			cfg.MaxCallsPerPrincipal, cfg.MaxNewSessionsPerPrincipal, cfg.MaxCallsPerAddress, cfg.MaxHandshakesPerAddress)
	}
	if cfg.ClientMemoryMiB < MinClientMemoryMiB {
		fault("client-memory-mib: %d; want %d or more", cfg.ClientMemoryMiB, MinClientMemoryMiB)
	}
	if cfg.MaxContentsMiB < 0 {
		fault("max-contents-mib: %d; want a positive number, or 0 for no bound", cfg.MaxContentsMiB)
	}
}

func (r *Replica) contentsUsed() float64 {
	if r.cfg.MaxContentsMiB == 0 {
		return 0
	}
	return float64(r.fsm.State().Tree.Counts().Weight()) / float64(int64(r.cfg.MaxContentsMiB)<<20)
}
