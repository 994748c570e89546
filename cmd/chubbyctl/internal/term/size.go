package term

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes as the value of a flag: 4096, 512KiB, 10MiB, 1GiB.
type Size int64

// units are those of sizes, the largest first. There are only those of 1024: MB may mean
// either.
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
func (s *Size) String() string {
	for _, u := range units() {
		if *s != 0 && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// Type is what help calls the value.
func (s *Size) Type() string { return "SIZE" }

// Set reads what a user writes.
func (s *Size) Set(text string) error {
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
	*s = Size(int64(n) * unit)
	return nil
}

// RoughSize is a number of bytes for people, rounded down to a tenth of its unit.
func RoughSize(bytes int64) string {
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
