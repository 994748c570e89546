package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/sequencer"
)

type putOptions struct {
	*globals
	ifGeneration uint64
	ifAbsent     bool // as --if-generation 0
	conditional  bool // --if-generation or --if-absent was given
	sequencer    sequencerCondition
	ephemeral    bool
	consent      consent
}

func putVerb(g *globals, cmd *cobra.Command) {
	o := &putOptions{globals: g}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 || len(args) == 2 {
			return nil
		}
		return usagef(`put: want a path and a value, in quotes if it has spaces, or "-" to read it from standard input; see 'chubbyctl put --help'`)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(cmd); err != nil {
			return err
		}
		p, err := o.parsePath(args[0])
		if err != nil {
			return err
		}
		value, err := o.readInput(cmd, append(args, "-")[1], p, "value")
		if err != nil {
			return err
		}
		if len(args) == 1 && len(value) == 0 { // mostly a mistake
			return usagef("put: there is no value, and nothing came from standard input; '' writes an empty file, and - what comes, also if that is nothing. Nothing was sent")
		}
		return o.writeFile(cmd, p, value)
	}
	cmd.Flags().Uint64Var(&o.ifGeneration, "if-generation", 0, "write only if the contents are at this generation; 0: only if there is no such file")
	cmd.Flags().BoolVar(&o.ifAbsent, "if-absent", false, "write only if there is no such file")
	o.sequencer.flag(cmd, "write")
	cmd.Flags().BoolVar(&o.ephemeral, "ephemeral", false, "create a file that goes with this session, and stay")
	o.consent.flag(cmd)
}

func (o *putOptions) validate(cmd *cobra.Command) error {
	o.conditional = cmd.Flags().Changed("if-generation") || o.ifAbsent
	switch {
	case o.ifAbsent && o.ifGeneration != 0:
		return usagef("--if-absent is --if-generation 0, and the other generation is that of a file that is there; choose one")
	case o.ephemeral && o.ifGeneration != 0:
		return usagef("put: --ephemeral and --if-generation do not go together: it creates a file of this session's own, and the other is about one that is there")
	}
	return nil
}

func (o *putOptions) onlyCreates() bool { return o.conditional && o.ifGeneration == 0 }

// readInput takes the value from the command line, or for "-" from standard input, and rejects one that no cell
// accepts.
func (g *globals) readInput(cmd *cobra.Command, argument string, p api.Path, what string) (value []byte, err error) {
	if value = []byte(argument); argument == "-" {
		if value, err = g.readSource(cmd, argument, what); hasEnded(cmd.Context()) {
			return nil, context.Cause(cmd.Context()) // the value may be incomplete
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the value from standard input: %w", err)
	case len(value) > api.MaxContents:
		return nil, &api.Error{Code: api.TooLarge, Op: "put", Path: p.String(), Message: fmt.Sprintf(
			"the value has more than %d bytes (256 KiB), the most a file may have; keep large data elsewhere and its location here. Nothing was sent", api.MaxContents)}
	}
	return value, nil
}

// readSource reads a file of this machine, or for "-" standard input, where on a terminal it asks for what it wants; either may be a pipe
// without an end.
func (g *globals) readSource(cmd *cobra.Command, source, what string) ([]byte, error) {
	in := cmd.InOrStdin()
	if source == "-" && term.IsTerminal(in) {
		g.notice(cmd.ErrOrStderr(), "type the "+what+", and then Ctrl-D on a line of its own; Ctrl-C gives up")
	}
	return untilInterrupt(cmd.Context(), func() ([]byte, error) {
		if source != "-" {
			f, err := os.Open(source)
			if err != nil {
				return nil, err
			}
			defer f.Close() // only read
			in = f
		}
		return io.ReadAll(io.LimitReader(in, api.MaxContents+1))
	})
}

// untilInterrupt runs a local read, before anything is sent. It may never end: an interrupt gives it up.
func untilInterrupt[T any](ctx context.Context, read func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() { // ends with the process, at the latest
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

func (o *putOptions) writeFile(cmd *cobra.Command, p api.Path, value []byte) error {
	seq, err := o.sequencer.parse(cmd)
	if err != nil {
		return err
	}
	if o.ephemeral {
		return o.keepEphemeral(cmd, p, value, seq)
	}
	list := string(value)
	if err := o.consent.confirmWrite(cmd.Context(), o.globals, p, &list); err != nil {
		return err
	}
	opts, conditions := o.openOptions(value, seq)
	err = o.withHandle(cmd.Context(), p, opts, func(ctx context.Context, h *client.Handle) error {
		if h.Created() { // with its contents
			return printCreated(ctx, o.globals, cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", h)
		}
		stat, err := h.SetContents(ctx, value, conditions...)
		if err != nil {
			return err
		}
		return o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", stat)
	})
	if seq != nil && !o.onlyCreates() && api.CodeOf(err) == api.NotFound {
		return fmt.Errorf("%w; --if-sequencer writes a file that is there: --if-absent creates one", err)
	}
	return o.exitCodeOf(err)
}

func (o *putOptions) exitCodeOf(err error) error {
	if o.onlyCreates() && api.CodeOf(err) == api.Exists {
		return &exitError{exitMismatch, err}
	}
	return o.sequencer.exitCodeOf(err)
}

// openOptions returns how to open the file, and the conditions for the write. seq is from --if-sequencer, or
// nil.
func (o *putOptions) openOptions(value []byte, seq *sequencer.Sequencer) (opts client.OpenOptions, conditions []client.WriteOption) {
	opts = client.OpenOptions{Write: true, Kind: api.File, Create: client.File, Contents: value}
	if o.onlyCreates() {
		opts.Create, opts.IfSequencer = client.NewFile, seq
		return opts, nil
	}
	if seq != nil {
		conditions = append(conditions, client.IfSequencer(*seq))
	}
	if o.conditional {
		conditions = append(conditions, client.IfGeneration(api.Generation(o.ifGeneration)))
	}
	if len(conditions) > 0 { // Open would create a file without checking them
		opts.Create, opts.Contents = client.Existing, nil
	}
	return opts, conditions
}

// keepEphemeral creates an ephemeral file, only while seq is valid unless it is nil, and keeps it until an
// interrupt.
func (o *putOptions) keepEphemeral(cmd *cobra.Command, p api.Path, value []byte, seq *sequencer.Sequencer) error {
	var h *client.Handle
	var stat api.Stat
	create := func(ctx context.Context, c *client.Client) (err error) {
		h, err = c.Open(ctx, p.String(), client.OpenOptions{
			Write:       true,
			Create:      client.NewFile,
			Ephemeral:   true,
			Contents:    value,
			IfSequencer: seq,
			Events:      []api.EventKind{api.EventLockAcquired}, // any kind: a handle with events also learns that its file is gone
		})
		if err != nil {
			return o.exitCodeOf(withAdvice(err, p, client.NewFile))
		}
		stat, _ = h.CreatedStat()
		return nil
	}
	stay := func(ctx context.Context, c *client.Client, _ error) error {
		if err := o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", stat); err != nil {
			return final{&exitError{exitFailed, fmt.Errorf("%v goes with this session: that it was created could not be written: %w", p, err)}}
		}
		if !o.json() {
			term.Remark(cmd.ErrOrStderr(), "%v lives as long as this command; end it with Ctrl-C", p)
		}
		for {
			_, err := h.Next(ctx)
			switch {
			case hasEnded(cmd.Context()):
				return final{}
			case err != nil:
				return final{fmt.Errorf("%s is gone: %w", h.Path(), cmp.Or(c.Err(), err))}
			}
		}
	}
	return o.withFollowing(cmd.Context(), p, &follower{begin: create, follow: stay})
}

func catVerb(g *globals, cmd *cobra.Command, args []string) error {
	return g.eachPath(args, func(p api.Path) error { return printFile(g, cmd, p) })
}

func printFile(g *globals, cmd *cobra.Command, p api.Path) error {
	contents, stat, err := g.readContents(cmd.Context(), p)
	if err != nil {
		return err
	}
	return printContents(g.output, cmd.OutOrStdout(), contents, stat)
}

type contentsFields struct {
	Path string `json:"path"`
	*watchedContents
}

func printContents(as term.Format, out io.Writer, contents []byte, stat api.Stat) error {
	if as.ForPrograms() {
		return as.Print(out, contentsFields{stat.Path.String(), newWatchedContents(contents, stat)})
	}
	_, err := out.Write(contents)
	return err
}

func mkdirVerb(g *globals, cmd *cobra.Command) {
	var parents bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return g.changeEach(args, func(p api.Path) error {
			return g.withSessionAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
				h, err := makeDirectory(ctx, c, p, parents)
				if err != nil {
					return err
				}
				return printCreated(ctx, g, cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", h)
			})
		})
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "create the directories above too; no error if it is there")
}

func makeDirectory(ctx context.Context, c *client.Client, p api.Path, parents bool) (h *client.Handle, err error) {
	dirs := []api.Path{p}
	for parents && !dirs[0].IsRoot() {
		dirs = slices.Insert(dirs, 0, dirs[0].Parent())
	}
	made := false
	for _, dir := range dirs {
		create := client.NewDirectory
		switch {
		case parents && dir.IsRoot():
			create = client.Existing
		case parents:
			create = client.Directory
		}
		h, err = c.Open(ctx, dir.String(), client.OpenOptions{Read: true, Create: create, Kind: api.Directory})
		if err != nil {
			return nil, afterSteps(made, withAdvice(err, dir, create))
		}
		made = made || h.Created()
	}
	return h, nil
}

func touchVerb(g *globals, cmd *cobra.Command, args []string) error {
	return g.changeEach(args, func(p api.Path) error {
		return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true, Create: client.File, Kind: api.File}, func(ctx context.Context, h *client.Handle) error {
			return printCreated(ctx, g, cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", h)
		})
	})
}
