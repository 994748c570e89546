package cell

import "time"

// Limits of Config.DiskStall. A slow disk, which syncs in tens of milliseconds, is far from the default. The
// other replicas elect a leader within as long again.
const (
	DefaultDiskStall = 3 * time.Second
	MinDiskStall     = time.Second
	MaxDiskStall     = 10 * time.Minute
)

func (cfg Config) checkDiskStall(fault func(string, ...any)) {
	if cfg.DiskStall < MinDiskStall || cfg.DiskStall > MaxDiskStall {
		fault("disk-stall: %v is outside %v to %v", cfg.DiskStall, MinDiskStall, MaxDiskStall)
	}
}
