package main

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// holderFields is a holder of a lock, as -o json shows it.
type holderFields struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	SinceS    int64  `json:"since_s"`
	Reason    string `json:"reason"`
	Cached    bool   `json:"cached,omitempty"`
	Owner     string `json:"owner,omitempty"`
}

func newHolderFields(h api.Holder) holderFields {
	return holderFields{
		Session:   h.Session.String(),
		Principal: h.Principal,
		Host:      h.Host,
		PID:       h.PID,
		SinceS:    int64(since(h.SinceUnix).Seconds()),
		Reason:    h.Reason,
		Cached:    h.Cached,
		Owner:     h.Owner,
	}
}

// whoIs names the session of a holder for people: "ann on web3 (pid 4711, s42)".
func whoIs(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d, %v)", whoseSession(h), h.PID, h.Session)
	}
	return fmt.Sprintf("%s (%v)", whoseSession(h), h.Session)
}

// whoseProcess is whoIs without the session's number, which has a column of its own.
func whoseProcess(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d)", whoseSession(h), h.PID)
	}
	return whoseSession(h)
}

func whoseSession(h api.Holder) string {
	who := h.Principal
	if who == "" {
		who = "somebody"
	}
	if h.Host != "" {
		who += " on " + h.Host
	}
	return who
}

// heldBy names the holders of a lock: "held by ann on web3 (pid 4711, s42) for 3m12s (deploy)".
func heldBy(holders []api.Holder) string {
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = fmt.Sprintf("%s for %s", whoIs(h), term.Roughly(since(h.SinceUnix)))
		if h.Reason != "" {
			parts[i] += " (" + h.Reason + ")"
		}
	}
	return "held by " + strings.Join(parts, ", ")
}
