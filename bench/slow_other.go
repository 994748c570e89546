//go:build !linux

package main

import (
	"errors"
	"sync/atomic"
	"time"
)

func slowSyncs(time.Duration) (*atomic.Int64, error) {
	return nil, errors.New("make syncs longer: only Linux can; measure distances only, with -syncs 0")
}
