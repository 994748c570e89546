package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/signal"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/supervise"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// statFields is a node's metadata, as -o json shows it.
type statFields struct {
	Path              string         `json:"path"`
	Kind              string         `json:"kind"`
	Ephemeral         bool           `json:"ephemeral"`
	Instance          api.Generation `json:"instance"`
	ContentGeneration api.Generation `json:"content_generation"`
	LockGeneration    api.Generation `json:"lock_generation"`
	ACLGeneration     api.Generation `json:"acl_generation"`
	Checksum          string         `json:"checksum"` // hexadecimal: as a number, JSON would not carry it exactly
	Size              int            `json:"size"`
	Children          int            `json:"children"`
	ACL               aclFields      `json:"acl"`
}

type aclFields struct {
	Read   string `json:"read"`
	Write  string `json:"write"`
	Change string `json:"change"`
}

func newStatFields(s api.Stat) statFields {
	return statFields{
		Path: s.Path.String(), Kind: s.Kind.String(), Ephemeral: s.Ephemeral,
		Instance: s.Instance, ContentGeneration: s.Content, LockGeneration: s.Lock, ACLGeneration: s.ACLs,
		Checksum: fmt.Sprintf("%016x", s.Checksum), Size: s.Size, Children: s.Children,
		ACL: aclFields(s.ACL),
	}
}

// show prints what a change made of a node: for programs always, for people,
// who have asked for just that, only with -v.
func (g *globals) show(out, remarks io.Writer, did string, s api.Stat) error {
	if g.json() {
		return term.PrintJSON(out, newStatFields(s))
	}
	if g.verbose {
		term.Remark(remarks, "%s %v (content generation %d, instance %d)", did, s.Path, s.Content, s.Instance)
	}
	return nil
}

// showMade is show for a node that was just made, if anything is to be shown: its metadata is
// asked for then. Without an answer to that it has been made all the same, and says so.
func (g *globals) showMade(ctx context.Context, out, remarks io.Writer, did string, h *client.Handle) error {
	if !g.json() && !g.verbose {
		return nil
	}
	stat, err := h.Stat(ctx)
	if err != nil {
		return &exitError{exitFailed, fmt.Errorf("%s %s, but what it is like now is not known: %w", did, h.Path(), err)}
	}
	return g.show(out, remarks, did, stat)
}

func newCatCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cat PATH...",
		Short: "Write the contents of files to standard output",
		Long: `cat writes the bytes of files exactly, with nothing added. With -o json it prints
an object per file instead, with contents (if they are UTF-8), contents_base64 and
the content generation.`,
		Example:           "  chubbyctl cat /ls/local/svc/primary",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachPath(args, func(p api.Path) error { return g.printFile(cmd, p) })
		},
	}
}

// printFile writes the contents of one file to standard output.
func (g *globals) printFile(cmd *cobra.Command, p api.Path) error {
	return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true, Kind: api.File}, func(ctx context.Context, h *client.Handle) error {
		contents, stat, err := h.Contents(ctx)
		if err != nil {
			return err
		}
		return g.printContents(cmd.OutOrStdout(), contents, stat)
	})
}

type contentsFields struct {
	Path              string         `json:"path"`
	ContentGeneration api.Generation `json:"content_generation"`
	Contents          *string        `json:"contents,omitempty"`
	ContentsBase64    string         `json:"contents_base64"`
}

func (g *globals) printContents(out io.Writer, contents []byte, stat api.Stat) error {
	if !g.json() {
		_, err := out.Write(contents)
		return err
	}
	f := contentsFields{Path: stat.Path.String(), ContentGeneration: stat.Content, ContentsBase64: base64.StdEncoding.EncodeToString(contents)}
	if utf8.Valid(contents) {
		text := string(contents)
		f.Contents = &text
	}
	return term.PrintJSON(out, f)
}

// eachPath runs f for every path, all of which are checked first.
func eachPath(texts []string, f func(api.Path) error) error {
	paths := make([]api.Path, len(texts))
	for i, text := range texts {
		p, err := parsePath(text)
		if err != nil {
			return err
		}
		paths[i] = p
	}
	for _, p := range paths {
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

type putOptions struct {
	*globals
	ifGeneration uint64
	conditional  bool // --if-generation was given
	sequencer    sequencerCondition
	ephemeral    bool
	consent      consent
}

func newPutCommand(g *globals) *cobra.Command {
	o := &putOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "put PATH [VALUE|-]",
		Short: "Write a file, creating it if absent",
		Long: fmt.Sprintf(`put replaces the whole of a file, creating it if it is absent. The value is the
second argument, or standard input without one, or if it is "-"; at most %d bytes.

--if-generation writes only if the contents are still at that generation (see
stat), and exits with %d if they are not; 0 means: only if there is no such file.

--if-sequencer writes only while the lock that the sequencer speaks of is held in
that generation, and exits with %d if it is not, or SEQ is no sequencer. The cell
decides that together with the write. It does not create a file.

--ephemeral creates a file that goes with the session, and so keeps the session
until SIGINT or SIGTERM. If somebody deletes the file before, it exits with %d.

An access control list that takes from you the right to write it again is not written
without --yes; 'chubbyctl acl file put' also checks its lines.`, api.MaxContents, exitMismatch, exitMismatch, exitFailed),
		Example: `  chubbyctl put /ls/local/motd 'hello'
  chubbyctl put /ls/local/config - <config.yaml
  chubbyctl put /ls/local/config - --if-generation 7 <config.yaml
  chubbyctl put /ls/local/state 'done' --if-sequencer "$CHUBBY_SEQUENCER"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return usagef(`put: want a path and a value, in quotes if it has spaces, or "-" to read it from standard input; see 'chubbyctl put --help'`)
		},
		ValidArgsFunction: onlyFirst(g.completePath),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd); err != nil {
				return err
			}
			p, err := parsePath(args[0])
			if err != nil {
				return err
			}
			value, err := o.value(cmd, args[1:], p)
			if err != nil {
				return err
			}
			return o.run(cmd, p, value)
		},
	}
	cmd.Flags().Uint64Var(&o.ifGeneration, "if-generation", 0, "write only if the contents are at this generation; 0: only if there is no such file")
	o.sequencer.flag(cmd, "write")
	cmd.Flags().BoolVar(&o.ephemeral, "ephemeral", false, "create a file that goes with this session, and stay")
	o.consent.flag(cmd)
	return cmd
}

func (o *putOptions) validate(cmd *cobra.Command) error {
	o.conditional = cmd.Flags().Changed("if-generation")
	guarded := cmd.Flags().Changed("if-sequencer")
	switch {
	case o.ephemeral && (o.conditional || guarded):
		return usagef("--ephemeral creates a file of this session's own; it cannot be combined with --if-generation or --if-sequencer")
	case guarded && o.conditional && o.ifGeneration == 0:
		return usagef("--if-generation 0 creates a file, and --if-sequencer writes one that is there; choose one")
	}
	return nil
}

// value is what is to be written. A value that is not mentioned comes from
// standard input, where an empty one is a slip more often than a wish.
func (o *putOptions) value(cmd *cobra.Command, given []string, p api.Path) ([]byte, error) {
	argument := "-"
	if len(given) > 0 {
		argument = given[0]
	}
	value, err := o.read(cmd, argument, p, "value")
	if err != nil {
		return nil, err
	}
	if err := context.Cause(cmd.Context()); err != nil {
		return nil, err // what was read so far is not the value
	}
	if len(given) == 0 && len(value) == 0 {
		return nil, usagef("put: there is no value, and nothing came from standard input; '' writes an empty file, and - what comes, also if that is nothing. Nothing was sent")
	}
	return value, nil
}

// read is readValue, which one signal ends as long as it waits for standard input:
// nothing was sent yet, and whoever writes may never end. What is to be typed on a
// terminal is called for.
func (g *globals) read(cmd *cobra.Command, argument string, p api.Path, what string) ([]byte, error) {
	in := cmd.InOrStdin()
	if _, waits := in.(*os.File); waits && argument == "-" && g.stop != nil {
		signal.Reset(supervise.Interrupts()...)
		defer g.interrupts(cmd)
		if err := context.Cause(cmd.Context()); err != nil {
			return nil, err // one came before
		}
		if term.IsTerminal(in) {
			g.notice(cmd.ErrOrStderr(), "type the "+what+", and then Ctrl-D on a line of its own; Ctrl-C gives up")
		}
	}
	return readValue(argument, in, p)
}

// readValue takes the value from the command line or from in, and refuses what
// no cell would take.
func readValue(argument string, in io.Reader, p api.Path) ([]byte, error) {
	value := []byte(argument)
	if argument == "-" {
		var err error
		if value, err = io.ReadAll(io.LimitReader(in, api.MaxContents+1)); err != nil {
			return nil, fmt.Errorf("read the value from standard input: %w", err)
		}
	}
	if len(value) > api.MaxContents {
		return nil, &api.Error{Code: api.TooLarge, Op: "put", Path: p.String(), Message: fmt.Sprintf(
			"the value has more than %d bytes (256 KiB), the most a file may have; keep large data elsewhere and its location here. Nothing was sent", api.MaxContents)}
	}
	return value, nil
}

func (o *putOptions) run(cmd *cobra.Command, p api.Path, value []byte) error {
	if o.ephemeral {
		return o.stay(cmd, p, value)
	}
	guards, err := o.sequencer.options(cmd)
	if err != nil {
		return err
	}
	list := string(value)
	if err := o.consent.change(cmd.Context(), o.globals, p, &list); err != nil {
		return err
	}
	opts, conditions := o.opening(value, guards)
	err = o.withHandle(cmd.Context(), p, opts, func(ctx context.Context, h *client.Handle) error {
		if h.Created() { // with its contents
			return o.showMade(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", h)
		}
		stat, err := h.SetContents(ctx, value, conditions...)
		if err != nil {
			return err
		}
		return o.show(cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", stat)
	})
	if o.conditional && o.ifGeneration == 0 && api.CodeOf(err) == api.Exists {
		return &exitError{exitMismatch, err}
	}
	if o.sequencer.given && api.CodeOf(err) == api.NotFound {
		return fmt.Errorf("%w; --if-sequencer writes a file that is there: 'chubbyctl touch %v' creates one", err, p)
	}
	return o.sequencer.verdict(err)
}

// opening says how to open a file that is to be written, and on which conditions
// to write it then.
func (o *putOptions) opening(value []byte, guards []client.WriteOption) (client.OpenOptions, []client.WriteOption) {
	opts := client.OpenOptions{Write: true, Kind: api.File, Create: client.File, Contents: value}
	if o.conditional && o.ifGeneration == 0 {
		opts.Create = client.NewFile
		return opts, nil // validate refuses guards with it
	}
	if o.conditional {
		guards = append(guards, client.IfGeneration(api.Generation(o.ifGeneration)))
	}
	if len(guards) > 0 { // creating a file would ask for none of them
		opts.Create, opts.Contents = client.Existing, nil
	}
	return opts, guards
}

// stay creates an ephemeral file and keeps it until an interrupt.
func (o *putOptions) stay(cmd *cobra.Command, p api.Path, value []byte) error {
	ctx := cmd.Context()
	bound, cancel := o.bound(ctx)
	defer cancel()
	v := o.keepVigil(bound, p.Cell(), p)
	defer v.stop()
	c, err := client.New(bound, o.config(p.Cell()))
	if err != nil {
		return v.explain(err)
	}
	defer o.leave(ctx, c)
	h, err := c.Open(bound, p.String(), client.OpenOptions{
		Write: true, Create: client.NewFile, Ephemeral: true, Contents: value,
		Events: []api.EventKind{api.EventLockAcquired}, // of any kind: that the file is gone comes with them
	})
	if err != nil {
		return v.explain(withAdvice(err, p, client.NewFile))
	}
	stat, err := h.Stat(bound)
	if err != nil {
		return v.explain(err)
	}
	v.stop()
	if err := o.show(cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", stat); err != nil {
		return err
	}
	if !o.json() {
		term.Remark(cmd.ErrOrStderr(), "%v lives as long as this command; end it with Ctrl-C", p)
	}
	return lastAsLong(ctx, h)
}

// lastAsLong waits for an interrupt, or for the end of a node of this session.
func lastAsLong(ctx context.Context, h *client.Handle) error {
	for {
		_, err := h.Next(ctx)
		switch {
		case ended(ctx):
			return nil
		case err != nil:
			return fmt.Errorf("%s is gone: %w", h.Path(), err)
		}
	}
}

func newMkdirCommand(g *globals) *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:               "mkdir PATH...",
		Short:             "Create directories",
		Example:           "  chubbyctl mkdir -p /ls/local/svc/web",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachPath(args, func(p api.Path) error {
				return g.visitAt(cmd.Context(), p.Cell(), p, func(ctx context.Context, c *client.Client) error {
					h, err := makeDirectory(ctx, c, p, parents)
					if err != nil {
						return err
					}
					return g.showMade(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", h)
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "create the directories above too; no error if it is there")
	return cmd
}

func makeDirectory(ctx context.Context, c *client.Client, p api.Path, parents bool) (*client.Handle, error) {
	create := client.NewDirectory
	if parents {
		create = client.Directory
		if !p.IsRoot() {
			if _, err := makeDirectory(ctx, c, p.Parent(), true); err != nil {
				return nil, err
			}
		} else {
			create = client.Existing
		}
	}
	h, err := c.Open(ctx, p.String(), client.OpenOptions{Read: true, Create: create, Kind: api.Directory})
	if err != nil {
		return nil, withAdvice(err, p, create)
	}
	return h, nil
}

func newRmCommand(g *globals) *cobra.Command {
	condition, agreed := &sequencerCondition{}, &consent{}
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Delete files and empty directories",
		Long: fmt.Sprintf(`rm deletes files and empty directories. A node whose lock somebody else holds is
not deleted.

--if-sequencer deletes only while the lock that the sequencer speaks of is held in
that generation, and exits with %d if it is not, or SEQ is no sequencer.

An access control list whose end takes from you the right to create it again is not
deleted without --yes.`, exitMismatch),
		Example: `  chubbyctl rm /ls/local/motd
  chubbyctl rm /ls/local/job/7 --if-sequencer "$CHUBBY_SEQUENCER"`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			conditions, err := condition.options(cmd)
			if err != nil {
				return err
			}
			return condition.verdict(eachPath(args, func(p api.Path) error { return g.remove(cmd, p, agreed, conditions) }))
		},
	}
	condition.flag(cmd, "delete")
	agreed.flag(cmd)
	return cmd
}

// remove deletes one node.
func (g *globals) remove(cmd *cobra.Command, p api.Path, agreed *consent, conditions []client.WriteOption) error {
	if err := agreed.change(cmd.Context(), g, p, nil); err != nil {
		return err
	}
	return g.withHandle(cmd.Context(), p, client.OpenOptions{Write: true}, func(ctx context.Context, h *client.Handle) error {
		if err := h.Delete(ctx, conditions...); err != nil {
			return err
		}
		if g.json() {
			return term.PrintJSON(cmd.OutOrStdout(), map[string]any{"path": p.String(), "deleted": true})
		}
		return nil
	})
}

func newTouchCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:               "touch PATH...",
		Short:             "Create empty files where there are none",
		Example:           "  chubbyctl touch /ls/local/svc/lock",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachPath(args, func(p api.Path) error {
				return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true, Create: client.File, Kind: api.File}, func(ctx context.Context, h *client.Handle) error {
					return g.showMade(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), "there is", h)
				})
			})
		},
	}
}

func newStatCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "stat PATH...",
		Short: "Show the metadata of nodes",
		Long: `stat shows a node's kind, size and the four numbers that only grow: of the
instance (greater than that of any node of that name before), of its contents and
of its ACL names (greater with each write), and of its lock (greater each time it
goes from free to held). All are drawn from one counter of the cell: they do not
count by one, and none ever stands for two contents of a name.`,
		Example:           "  chubbyctl stat -o json /ls/local/motd",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: g.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			first := true
			return eachPath(args, func(p api.Path) error {
				if !first && !g.json() {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				first = false
				return g.withHandle(cmd.Context(), p, client.OpenOptions{Read: true}, func(ctx context.Context, h *client.Handle) error {
					stat, err := h.Stat(ctx)
					if err != nil {
						return err
					}
					return g.printStat(cmd.OutOrStdout(), stat)
				})
			})
		},
	}
}

func (g *globals) printStat(out io.Writer, s api.Stat) error {
	if g.json() {
		return term.PrintJSON(out, newStatFields(s))
	}
	kind := s.Kind.String()
	if s.Ephemeral {
		kind = "ephemeral " + kind
	}
	t := g.output.NewTable(out)
	t.Add("path", s.Path)
	t.Add("kind", kind)
	if s.Kind == api.Directory {
		t.Add("children", s.Children)
	} else {
		t.Add("size", fmt.Sprintf("%d bytes, checksum %016x", s.Size, s.Checksum))
	}
	t.Add("instance", s.Instance)
	t.Add("content generation", s.Content)
	t.Add("lock generation", s.Lock)
	t.Add("acl generation", s.ACLs)
	t.Add("acl", fmt.Sprintf("read %s, write %s, change %s", term.OrDash(s.ACL.Read), term.OrDash(s.ACL.Write), term.OrDash(s.ACL.Change)))
	return t.Flush()
}
