package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/client"
)

// cell status --check fails for what somebody has to look at, and says what that is.
func TestStatusIsChecked(t *testing.T) {
	well := func(id string) client.ReplicaStatus {
		return client.ReplicaStatus{ID: id, Healthy: true, DiskFree: 10 << 30}
	}
	for want, change := range map[string]func(s *client.Status, fault *string){
		"":                         func(s *client.Status, _ *string) { s.Replicas[1].Lag, s.Replicas[2].DiskFree = 999, -1 },
		"r2 does not answer":       func(s *client.Status, _ *string) { s.Replicas[1].Err = errors.New("down") },
		"r3 is not OK":             func(s *client.Status, _ *string) { s.Replicas[2].Healthy = false },
		"r2 is 1000 entries":       func(s *client.Status, _ *string) { s.Replicas[1].Lag = 1000 },
		"r1 has less than 1 GiB":   func(s *client.Status, _ *string) { s.Replicas[0].DiskFree = 1<<30 - 1 },
		"their states differ":      func(_ *client.Status, fault *string) { *fault = "their states differ" },
		"r1 is not OK; r2 is not":  func(s *client.Status, _ *string) { s.Replicas[0].Healthy, s.Replicas[1].Healthy = false, false },
		"cell main is not well: r": func(s *client.Status, _ *string) { s.Replicas[0].Healthy = false },
	} {
		s, fault := client.Status{Cell: "main", Master: "r1", Replicas: []client.ReplicaStatus{well("r1"), well("r2"), well("r3"), {Err: errors.New("no member")}}}, ""
		change(&s, &fault)
		err := checkStatus(s, fault)
		if want == "" && err != nil || want != "" && (exitCode(err) != exitFailed || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
