package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes as a flag: 4096, 512KiB, 10MiB, 1GiB.
type size int64

// units are those of sizes, the largest first. Only those of 1024 are taken:
// of MB nobody knows which it is.
func units() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// String writes the size exactly, in the largest unit that does.
func (s *size) String() string {
	for _, u := range units() {
		if *s != 0 && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// Type is what help calls the value.
func (s *size) Type() string { return "SIZE" }

// Set reads what a user writes.
func (s *size) Set(text string) error {
	digits, unit := text, int64(1)
	for _, u := range units() {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = number, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return fmt.Errorf("want bytes, or 512KiB, 10MiB, 1GiB")
	}
	*s = size(int64(n) * unit)
	return nil
}

// roughSize is a number of bytes for people, never more than there are.
func roughSize(bytes int64) string {
	for _, u := range units() {
		if u.bytes == 1 || bytes < u.bytes {
			continue
		}
		tenths := bytes/u.bytes*10 + bytes%u.bytes*10/u.bytes
		if tenths%10 == 0 {
			return fmt.Sprintf("%d%s", tenths/10, u.name)
		}
		return fmt.Sprintf("%d.%d%s", tenths/10, tenths%10, u.name)
	}
	return fmt.Sprintf("%dB", bytes)
}
