package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type electOptions struct {
	workOptions
	value    string
	name     string
	priority int
	yield    bool

	observe    bool
	show       bool
	candidates bool
	nominate   string
}

func electVerb(g *globals, cmd *cobra.Command) {
	o := &electOptions{workOptions: workOptions{globals: g}}
	cmd.Args = o.takeArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeStreams(cmd)
		if err := o.validate(cmd.Flags().Changed); err != nil {
			return err
		}
		switch ctx := cmd.Context(); {
		case o.observe:
			return o.followElection(ctx)
		case o.show:
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
		case o.candidates:
			return o.withSession(ctx, o.path.Cell(), func(ctx context.Context, c *client.Client) error {
				all, err := recipe.Candidates(ctx, c, o.path.String())
				if err == nil && len(all) == 0 && !o.json() {
					term.Remark(o.err, "%v has no candidates that registered; 'chubbyctl locks %v' shows who has its lock", o.path, o.path)
				}
				if err != nil || len(all) == 0 {
					return err
				}
				list := term.List[recipe.Candidate]{
					Fields: candidateFields,
					Add: func(t *term.Table, one recipe.Candidate) {
						t.Add(one.Name, placeOf(one), one.Priority, one.Session, one.Host, one.PID, string(one.Value))
					},
					Columns: []string{"CANDIDATE", "PLACE", "PRIORITY", "SESSION", "HOST", "PID", "VALUE"},
				}
				return list.PrintAll(o.out, o.output, all)
			})
		case o.nominate != "":
			err := o.withSession(ctx, o.path.Cell(), func(ctx context.Context, c *client.Client) error {
				return recipe.Nominate(ctx, c, o.path.String(), o.nominate)
			})
			if err == nil {
				o.notice(fmt.Sprintf("%s is the next primary of %v; if there is one now, it has been asked to give way, and does at once if it runs with --yield", o.nominate, o.path))
			}
			return err
		default:
			return o.runWork(ctx, o.campaign)
		}
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	flags.StringVar(&o.value, "value", "", "what the primary says of itself, as its address: the contents of the file")
	flags.StringVar(&o.name, "name", "", "what the candidate is called (default: host, process and session)")
	flags.IntVar(&o.priority, "priority", 0, "candidates of a higher one come first")
	flags.BoolVar(&o.yield, "yield", false, "resign for a candidate that comes first: CMD gets SIGTERM then")
	flags.BoolVar(&o.observe, "observe", false, "print every primary, and every vacancy, instead of taking part")
	flags.BoolVar(&o.show, "show", false, "print who is the primary now, instead of taking part")
	flags.BoolVar(&o.candidates, "candidates", false, "list the candidates instead of taking part")
	flags.StringVar(&o.nominate, "nominate", "", "choose the candidate of this `name` as the next primary, instead of taking part")
	chooseOne(flags, "they are different things", "observe", "show", "candidates", "nominate")
	for _, instead := range []string{"observe", "show", "candidates", "nominate"} {
		keepApart(flags, instead, "it takes no part in the election", append(flagsOfHolding(), "value", "name", "priority", "yield")...)
	}
}

func (o *electOptions) validate(given func(flag string) bool) error {
	instead := o.observe || o.show || o.candidates || given("nominate")
	switch {
	case instead && len(o.argv) > 0:
		return usagef("elect: --observe, --show, --candidates and --nominate take no part in the election: it runs no command then")
	case given("nominate") && o.nominate == "":
		return usagef("--nominate: which candidate? 'chubbyctl elect --candidates %v' lists them", o.path)
	case instead && o.path.IsRoot():
		return usagef("elect: %v is the root directory of its cell; name the file of an election", o.path)
	case instead:
		return nil
	case isList(o.path): // the user might be unable to undo what elect writes
		return usagef("elect: %v is an access control list, which --value would replace; an election has a file of its own", o.path)
	case !given("value"):
		return usagef("elect: --value is missing: what the file is to say of the primary, as its address (or --observe, to look on)")
	case len(o.value) > api.MaxContents:
		return usagef("--value has %d bytes; a file holds at most %d", len(o.value), api.MaxContents)
	}
	if o.name != "" { // a file beside the election's gets the name
		if p, err := o.path.Join(o.name); err != nil || p.Parent() != o.path {
			return usagef("--name: %q cannot be the name of a candidate; want one component of a path", abridged(o.name))
		}
	}
	return o.workOptions.validate()
}

// campaign waits until this process is the primary. After a while it says what for.
func (o *electOptions) campaign(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	early := fmt.Sprintf("it is not in the lock's queue, because another candidate goes first, its name is still that of a session before, "+
		"or the cell does not answer ('chubbyctl elect --candidates %v' lists the candidates)", o.path)
	return o.waitFor(ctx, minCampaign, early, func(ctx context.Context, w *lockWait) (*heldLock, error) {
		queued := func(q client.Queued) {
			q.Estimate = 0 // primaries have no usual hold time
			w.queued(q)
		}
		primary, err := recipe.Campaign(ctx, c, o.path.String(), recipe.CampaignOptions{
			Name: o.name, Value: []byte(o.value), Priority: o.priority, Reason: o.reason, LockDelay: o.recipeDelay(), OnQueued: queued,
		})
		if err != nil {
			return nil, withAdvice(err, o.path, client.File)
		}
		t := holding(primary.Lock(), func(ctx context.Context) error {
			err := primary.Lock().Release(ctx)
			// A silent client with the list of candidates in its cache can delay the end of the registration: that is not waited for.
			ctx, cancel := context.WithTimeout(ctx, client.CleanupTime)
			defer cancel()
			_ = primary.Resign(ctx) // if it fails, the registration ends with the session
			return err
		})
		t.request = request{asked: primary.Asked(), yield: o.yield, told: o.describeCandidate}
		return t, nil
	})
}

func (o *electOptions) describeCandidate() string {
	if o.yield {
		return "a candidate that goes first is waiting: giving way"
	}
	return "a candidate that goes first is waiting; it has the lock when this one ends (--yield would give way at once)"
}

func candidateFields(c recipe.Candidate) term.Fields {
	return append(term.Fields{
		"name", c.Name, "rank", c.Rank, "priority", c.Priority, "primary", c.Primary, "chosen", c.Chosen,
		"session", c.Session.String(), "host", c.Host, "pid", c.PID,
	}, valueFields(c.Value)...)
}

func placeOf(c recipe.Candidate) string {
	switch {
	case c.Primary:
		return "primary"
	case c.Chosen:
		return strconv.Itoa(c.Rank) + ", chosen"
	}
	return strconv.Itoa(c.Rank)
}

// valueFields returns a value for -o json: as text, empty if it is not UTF-8, and exact.
func valueFields(value []byte) term.Fields {
	text := ""
	if utf8.Valid(value) {
		text = string(value)
	}
	return term.Fields{"value", text, "value_base64", base64.StdEncoding.EncodeToString(value)}
}

// followElection prints every primary and every vacancy until an interrupt.
func (o *electOptions) followElection(ctx context.Context) error {
	var last *recipe.Reign
	return followEach(ctx, o.globals, o.path, recipe.Observe, func(reign recipe.Reign) error {
		surer := o.json() && last != nil && reign.Sure && !last.Sure // a line of text does not show it
		same := last != nil && last.Vacant == reign.Vacant && last.Token == reign.Token && bytes.Equal(last.Value, reign.Value) &&
			last.Holder.Session == reign.Holder.Session
		if same && !surer { // as in the session before
			return nil
		}
		last = &reign
		return o.printReign(reign, now().Local().Format("2006-01-02 15:04:05.000")+"  ")
	})
}

// printReign prints a primary or a vacancy on one line.
func (o *electOptions) printReign(r recipe.Reign, prefix string) error {
	f := append(append(term.Fields{"path", o.path.String(), "vacant", r.Vacant, "token", r.Token}, valueFields(r.Value)...), "sure", r.Sure)
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
		f = append(f, "holder", holderFields(r.Holder))
		what += "  " + whoIs(r.Holder)
	}
	return o.output.SayIn(o.out, f, color, prefix+what)
}
