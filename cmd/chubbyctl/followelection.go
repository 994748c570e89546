package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type primaryFields struct {
	Path   string `json:"path"`
	Vacant bool   `json:"vacant"`
	Token  uint64 `json:"token"`
	valueFields
	Sure   bool          `json:"sure"`
	Holder *holderFields `json:"holder,omitempty"`
}

// valueFields is a value in JSON: as text, empty if it is not UTF-8, and exact.
type valueFields struct {
	Value       string `json:"value"`
	ValueBase64 string `json:"value_base64"`
}

func newValueFields(value []byte) valueFields {
	f := valueFields{ValueBase64: base64.StdEncoding.EncodeToString(value)}
	if utf8.Valid(value) {
		f.Value = string(value)
	}
	return f
}

// followElection prints every primary and every vacancy until an interrupt.
func (o *electOptions) followElection(ctx context.Context) error {
	var last *recipe.Reign
	return followEach(ctx, o.globals, o.path, recipe.Observe, func(reign recipe.Reign) error {
		surer := o.json() && last != nil && reign.Sure && !last.Sure // a line of text does not show it
		if last != nil && isSameReign(*last, reign) && !surer {      // as in the session before
			return nil
		}
		last = &reign
		return o.printPrimary(reign)
	})
}

// isSameReign reports whether two reigns print alike, except for Sure.
func isSameReign(a, b recipe.Reign) bool {
	return a.Vacant == b.Vacant && a.Token == b.Token && bytes.Equal(a.Value, b.Value) && a.Holder.Session == b.Holder.Session
}

// showPrimary prints the current primary, or a vacancy, which is an error.
func (o *electOptions) showPrimary(ctx context.Context) error {
	return o.withSession(ctx, o.path.Cell(), func(ctx context.Context, c *client.Client) error {
		reign, err := recipe.Leader(ctx, c, o.path.String())
		if err != nil {
			return err
		}
		if reign.Vacant && !o.json() {
			return api.Errorf(api.NotFound, "%v has no primary", o.path)
		}
		if err := o.printReign(reign, ""); err != nil || !reign.Vacant {
			return err
		}
		return &exitError{code: exitFailed} // the line says that it is vacant
	})
}

// printPrimary prints a primary or a vacancy on one line, with the time.
func (o *electOptions) printPrimary(r recipe.Reign) error {
	return o.printReign(r, now().Local().Format("2006-01-02 15:04:05.000")+"  ")
}

func (o *electOptions) printReign(r recipe.Reign, prefix string) error {
	f := primaryFields{Path: o.path.String(), Vacant: r.Vacant, Token: r.Token, valueFields: newValueFields(r.Value), Sure: r.Sure}
	if !r.Vacant && r.Holder.Session != 0 {
		h := newHolderFields(r.Holder)
		f.Holder = &h
	}
	what, color := "vacant", term.Waiting
	switch {
	case r.Vacant:
	case len(strings.TrimSpace(string(r.Value))) == 0:
		what, color = "primary: (has not said who it is)", term.Waiting
	default:
		what, color = "primary: "+strings.TrimRight(string(r.Value), "\n"), term.Plain
	}
	if r.Token != 0 {
		what += fmt.Sprintf("  token %d", r.Token)
	}
	if !r.Vacant && r.Holder.Session != 0 {
		what += "  " + whoIs(r.Holder)
	}
	return o.output.SayIn(o.out, f, color, prefix+what)
}
