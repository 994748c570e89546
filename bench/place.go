package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// place says how much slower the disks of a system are than this machine's, and how far apart its processes: 0 is as here.
type place struct {
	Sync time.Duration `json:"sync_ns,omitempty"` // more takes each fsync
	Trip time.Duration `json:"trip_ns,omitempty"` // from a process to another and back
}

func (p place) String() string {
	switch {
	case p.Sync > 0 && p.Trip > 0:
		return fmt.Sprintf("fsync +%v, %v apart", p.Sync, p.Trip)
	case p.Sync > 0:
		return fmt.Sprintf("fsync +%v", p.Sync)
	case p.Trip > 0:
		return fmt.Sprintf("%v apart", p.Trip)
	}
	return "as it is"
}

// surveyed is what a place was measured to be, without a system.
type surveyed struct {
	place
	Fsync time.Duration `json:"fsync_p50_ns"` // of 4 KiB appended to a file
	Echo  time.Duration `json:"echo_p50_ns"`  // there and back
}

// places lists where systems are measured: on slower disks, and then farther apart.
func places(o options) []place {
	if !o.disks {
		return []place{{}}
	}
	var list []place
	for _, longer := range o.syncs {
		list = append(list, place{Sync: longer})
	}
	for _, trip := range o.trips {
		if trip > 0 || len(o.syncs) == 0 {
			list = append(list, place{Trip: trip})
		}
	}
	return list
}

// maxDelay bounds what is longer: chubbyd, which waits a minute for its disk, and elections would be measured beyond it.
const maxDelay = time.Second

// parseDelays reads durations with commas between them; an empty text has none.
func parseDelays(text string) ([]time.Duration, error) {
	var list []time.Duration
	if text == "" {
		return nil, nil
	}
	for field := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(field)
		if err != nil || d < 0 || d > maxDelay {
			return nil, fmt.Errorf("%q: want durations from 0 to %v, such as 2ms, with commas between them", field, maxDelay)
		}
		list = append(list, d)
	}
	return list, nil
}

// checkSyncs returns an error if no sync of a child was made longer that was to be.
func (c *child) checkSyncs() error {
	if c.counted == "" {
		return nil
	}
	text, err := os.ReadFile(c.counted)
	if err != nil {
		return fmt.Errorf("no sync was made longer: %w\n%s", err, c.tail())
	}
	if string(text) == "0" {
		return fmt.Errorf("%s called neither fsync nor fdatasync, so nothing was slower", c.name)
	}
	fmt.Fprintf(os.Stderr, "  %s syncs of %s were longer\n", text, c.name)
	return nil
}

// surveyFirst measures what the places are before it measures systems there.
func surveyFirst(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	for _, p := range places(o) {
		one, err := survey(ctx, p, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		results.Places = append(results.Places, one)
	}
	return runRounds(ctx, o, dir, results, out)
}

func survey(ctx context.Context, p place, dir string) (s surveyed, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s.place = p
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	c, err := startSlowed(dir, "fsync", nil, p.Sync, keepCommand, self, fsyncCommand, dir)
	if err != nil {
		return s, err
	}
	line, err := c.await(ctx, fsyncCommand)
	if err = errors.Join(err, c.stop()); err != nil {
		return s, err
	}
	if s.Fsync, err = time.ParseDuration(strings.TrimPrefix(line, fsyncCommand)); err != nil {
		return s, err
	}
	s.Echo, err = measureEcho(ctx, p)
	return s, err
}

// runFsync prints how long an fsync takes below a directory.
func runFsync(args []string) error {
	took, err := measureFsync(strings.Join(args, ""))
	fmt.Println(fsyncCommand + took.String())
	return err
}

// measureEcho measures how long a message takes to a process and back.
func measureEcho(ctx context.Context, p place) (_ time.Duration, err error) {
	echo, err := net.Listen("tcp", net.JoinHostPort(thisHost, "0"))
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	go func() { // ends with the listener
		for {
			conn, err := echo.Accept() // the first may be a relay's that looks whether somebody listens
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	relays, known, err := p.relay([]string{echo.Addr().String()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, relays.close()) }()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", known[0])
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var times []time.Duration
	for range 20 {
		var message [64]byte
		began := time.Now()
		if _, err := conn.Write(message[:]); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, message[:]); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	return median(times), nil
}
