package cell

import "time"

// Bounds of Config.DiskStall. A slow disk, which syncs in tens of milliseconds, is far from the default, and the
// replicas elect another leader within as much again.
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
