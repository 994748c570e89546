package main

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// party is a session and its owner, for -o json: a holder, a waiter, or the cause of a delay.
type party struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
}

func newParty(h api.Holder) party { return party{h.Session.String(), h.Principal, h.Host, h.PID} }

type holderFields struct {
	party
	SinceS int64  `json:"since_s"`
	Reason string `json:"reason"`
	Cached bool   `json:"cached,omitempty"`
	Owner  string `json:"owner,omitempty"`
}

func newHolderFields(h api.Holder) holderFields {
	return holderFields{newParty(h), int64(since(h.SinceUnix).Seconds()), h.Reason, h.Cached, h.Owner}
}

// newHolderList returns holders for -o json: an empty list, not null, for none.
func newHolderList(holders []api.Holder) []holderFields {
	list := []holderFields{}
	for _, h := range holders {
		list = append(list, newHolderFields(h))
	}
	return list
}

// whoIs names a holder's session for people: "ann on web3 (pid 4711, s42)".
func whoIs(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d, %v)", whoseSession(h), h.PID, h.Session)
	}
	return fmt.Sprintf("%s (%v)", whoseSession(h), h.Session)
}

// whoseProcess is whoIs without the session's number, which has its own column.
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

// heldBy names a lock's holders: "held by ann on web3 (pid 4711, s42) for 3m12s (deploy)".
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
