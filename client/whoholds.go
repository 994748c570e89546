package client

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

func nameHolders(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.LockHeld || len(e.Holders) == 0 {
		return err
	}
	own := *e
	own.Message = "held by " + whoHolds(e.Holders) + "; " + own.Message
	return &own
}

const maxNamed = 3

// whoHolds describes the holders: "ann on web3 (pid 4711, s42: deploy)".
func whoHolds(holders []api.Holder) string {
	var list []string
	for _, h := range holders[:min(len(holders), maxNamed)] {
		who := fmt.Sprintf("%s on %s (pid %d, %v", cmp.Or(h.Principal, "somebody"), cmp.Or(h.Host, "an unknown host"), h.PID, h.Session)
		if h.Reason != "" {
			who += ": " + h.Reason
		}
		list = append(list, who+")")
	}
	if more := len(holders) - maxNamed; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
