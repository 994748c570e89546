package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/sequencer"
)

func sequencerCheckVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.checkSequencer(cmd.Context(), args[0], cmd.OutOrStdout())
	}
}

func sequencerShowVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return g.showSequencer(args[0], cmd.OutOrStdout()) }
}

type verdictFields struct {
	Valid       bool   `json:"valid"`
	Path        string `json:"path,omitempty"`
	Token       uint64 `json:"token,omitempty"`
	Explanation string `json:"explanation,omitempty"` // why not
}

func (g *globals) checkSequencer(ctx context.Context, text string, out io.Writer) error {
	seq, err := sequencer.Parse(text)
	if err == nil {
		err = g.withCell(ctx, seq.Path.Cell(), func(ctx context.Context, c *client.Cell) error {
			return c.CheckSequencer(ctx, text)
		})
	}
	verdict := verdictFields{Valid: err == nil, Token: seq.Token()}
	if !seq.Path.IsZero() {
		verdict.Path = seq.Path.String()
	}
	if err != nil {
		if api.CodeOf(err) != api.BadSequencer {
			return err // nothing is known about the sequencer
		}
		verdict.Explanation = explanation(err)
		err = &exitError{code: exitMismatch}
	}
	line := "valid"
	if !verdict.Valid {
		line = "not valid: " + verdict.Explanation
	}
	return errors.Join(g.output.Say(out, verdict, "%s", line), err)
}

func (g *globals) showSequencer(text string, out io.Writer) error {
	seq, err := sequencer.Parse(text)
	if err != nil {
		return &exitError{exitMismatch, err}
	}
	f := struct {
		Path   string     `json:"path"`
		Mode   string     `json:"mode"`
		Token  uint64     `json:"token"`
		CellID api.CellID `json:"cell_id"`
	}{seq.Path.String(), seq.Mode.String(), seq.Token(), seq.Cell}
	return g.output.Show(out, f, func(p *term.Page) {
		p.Fields("path", seq.Path, "mode", seq.Mode, "token", seq.Token(), "cell id", seq.Cell)
	})
}

// sequencerCondition is the flag --if-sequencer: it requires that the sequencer's lock is still held in its
// generation.
type sequencerCondition struct {
	text  string
	given bool // also with an empty text, as from an unset variable
}

func (s *sequencerCondition) flag(cmd *cobra.Command, does string) {
	cmd.Flags().StringVar(&s.text, "if-sequencer", "", does+" only if the sequencer `SEQ` is valid: its lock is still held")
}

// parse returns the sequencer, or nil without the flag. It rejects text that is no sequencer like an invalid
// one, before anything is sent.
func (s *sequencerCondition) parse(cmd *cobra.Command) (*sequencer.Sequencer, error) {
	if s.given = cmd.Flags().Changed("if-sequencer"); !s.given {
		return nil, nil
	}
	seq, err := sequencer.Parse(s.text)
	if err != nil {
		return nil, s.exitCodeOf(fmt.Errorf("--if-sequencer: %w", err))
	}
	return &seq, nil
}

// options returns the options that make a change depend on the sequencer.
func (s *sequencerCondition) options(cmd *cobra.Command) ([]client.WriteOption, error) {
	seq, err := s.parse(cmd)
	if seq == nil {
		return nil, err
	}
	return []client.WriteOption{client.IfSequencer(*seq)}, nil
}

func (s *sequencerCondition) exitCodeOf(err error) error {
	if s.given && api.CodeOf(err) == api.BadSequencer {
		return &exitError{exitMismatch, err}
	}
	return err
}
