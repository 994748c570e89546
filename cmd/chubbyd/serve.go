package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/backupstore"
	"github.com/chubbylock/chubby/internal/otlp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type serveOptions struct {
	config        string
	restoreAccess bool // for one start, so the file has no key for it
	exitWithStdin bool // stop when standard input ends: so dev's replicas notice that dev has ended
	flags         *pflag.FlagSet
}

func newServeCommand() *cobra.Command { return newServeCommandOf(new(serveOptions)) }

func newServeCommandOf(o *serveOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [--config FILE]",
		Short: "Run one replica",
		Long: `serve runs one replica of a cell until SIGTERM or SIGINT. Then it drains: a
master hands over first, for at most --stop-timeout; a second signal ends it at
once. So does SIGHUP if standard input is a terminal, which was closed then. Without a
terminal, SIGHUP has the configuration read again: log-level is taken over, and the log
says which other keys have changed and need a restart.

Every key of the configuration file is also a flag and a variable: log-level is
--log-level and CHUBBYD_LOG_LEVEL. A flag counts more than a variable, and a
variable more than the file. The file may be left out if the rest says enough.

A new cell begins when each of its members has been started with --bootstrap, and
with the same members. From then on the flag means nothing and may stay. Without
it, an empty data directory is refused; with it, too, where another member knows
the cell already: that replica has lost its data, and must not vote.

Where access control lists admit nobody any more, whoever has the machines has the
way back: stop the replicas, and start each once with --restore-access. The one that
becomes the master within a minute makes the list everyone admit everybody, and the
root directory and all lists name it; the rest of the names stay. Start them without
the flag after that: it means nothing later, and the log of the cell keeps what it did.

If the replica stops by itself (its disk failed or stalled), serve says why and
exits with 1; let the supervisor of the process start it again. It exits with 78
when it must not run with the configuration or on the data that it has: starting it
again does not help.`,
		Example: `  chubbyd serve --config /etc/chubby/chubbyd.yaml
  CHUBBYD_ID=r2 chubbyd serve --config chubbyd.yaml --data /srv/chubby/r2
  chubbyd serve --bootstrap --cell main --id r1 --data ./r1 \
      --members 'r1=127.0.0.1:7421,127.0.0.1:7431,127.0.0.1:7441'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runReplica(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd)
	return cmd
}

// addFlags adds the flags to a command, with their completion.
func (o *serveOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.flags = flags
	flags.StringVar(&o.config, "config", "", "the configuration file")
	flags.BoolVar(&o.restoreAccess, "restore-access", false, "have everybody admitted to the access control lists again; see above")
	flags.BoolVar(&o.exitWithStdin, "exit-with-stdin", false, "stop when standard input ends")
	if err := flags.MarkHidden("exit-with-stdin"); err != nil {
		panic(err) // the line above defined the flag
	}
	for _, k := range keys() {
		flags.String(k.name, "", k.usage)
		if k.isSwitch {
			flags.Lookup(k.name).NoOptDefVal = "true"
		}
		if len(k.words) > 0 {
			completeFlag(cmd, k.name, k.words...)
		}
	}
}

// collect collects the settings, unchecked: defaults, file, environment, flags; later ones override earlier ones.
func (o *serveOptions) collect() (*draft, error) {
	config := o.config
	if config == "" {
		config = os.Getenv(variable("config"))
	}
	d := newDraft("flags and environment")
	if config != "" {
		d = newDraft(config)
		if err := d.readFile(config); err != nil {
			return nil, err
		}
	}
	for _, k := range d.keys {
		if text, ok := os.LookupEnv(variable(k.name)); ok {
			d.set(k, text, place{source: variable(k.name)})
		}
		if f := o.flags.Lookup(k.name); f.Changed {
			d.set(k, f.Value.String(), place{source: "--" + k.name})
		}
	}
	return d, nil
}

func (o *serveOptions) runReplica(ctx context.Context, in io.Reader, out io.Writer) error {
	endsByPipe()
	d, err := o.collect()
	if err != nil {
		return err
	}
	if err := errorOf(d.validate()); err != nil {
		return configError{err}
	}
	s, level := d.settings, new(slog.LevelVar)
	level.Set(s.logLevel)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.exitWithStdin {
		// A blocking read of standard input cannot be cancelled, so nothing waits for this goroutine; it ends
		// with the process.
		go func() {
			_, _ = io.Copy(io.Discard, in)
			cancel(errors.New("standard input ended"))
		}()
	}
	defer runtime.KeepAlive(newBallast())
	s.replica.MaxContentsMiB = cmp.Or(s.replica.MaxContentsMiB, contentsBound(memoryLimit()))
	s.publishing.install(&s.replica)
	said := new(tail)
	s.replica.Logger, s.replica.RestoreAccess = newLogger(io.MultiWriter(said, out), s, level), o.restoreAccess
	s.replica.Debug = d.debug(said)
	if text := backupstore.Warning(s.replica.Backups.Place); text != "" {
		s.replica.Logger.Warn(text)
	}
	if isTerminal(in) { // SIGHUP reports its end
		onHangup(ctx, func() { cancel(errHangup) })
	} else {
		onHangup(ctx, (&reloader{options: o, draft: d, level: level, log: s.replica.Logger}).reload)
	}
	stopTraces, err := s.tracing.install(ctx, &s.replica, s.replica.Logger)
	if err != nil {
		return err
	}
	defer stopTraces(ctx)
	replica, err := cell.Start(ctx, s.replica)
	if ctx.Err() != nil && errors.Is(err, api.Cancelled) {
		return nil // the log has it
	}
	if err != nil {
		return fmt.Errorf("start replica %s of cell %s in %s: %w", s.replica.ID, s.replica.Cell, s.replica.Data, err)
	}
	return serveUntil(ctx, replica, s)
}

func newLogger(out io.Writer, s settings, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// serving is the part of cell.Replica that serveUntil needs.
type serving interface {
	// Done is closed when the replica has stopped.
	Done() <-chan struct{}
	// Err returns why it stopped by itself.
	Err() error
	// Log is the replica's log.
	Log() *slog.Logger
	// Stop drains and stops the replica, until ctx ends at the latest.
	Stop(ctx context.Context) error
}

// serveUntil waits until ctx ends, which is an orderly stop, or until the replica ends, which is a failure.
func serveUntil(ctx context.Context, replica serving, s settings) error {
	select {
	case <-replica.Done():
		if err := replicaErr(replica); errors.Is(err, cell.ErrRefused) {
			return fmt.Errorf("replica %s of cell %s stopped, and must not be started again as it is: %w", s.replica.ID, s.replica.Cell, err)
		}
		// The error says what to do: whether a restart helps depends on the cause.
		return fmt.Errorf("replica %s of cell %s stopped by itself: %w\n"+
			"  Its data directory is %s. The other replicas carry on if they are a majority",
			s.replica.ID, s.replica.Cell, replicaErr(replica), s.replica.Data)
	case <-ctx.Done():
	}
	replica.Log().Info("stopping", "cause", context.Cause(ctx), "bound", s.stop)
	bound, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.stop, errors.New("stop-timeout is over"))
	defer cancel()
	if err := replica.Stop(bound); err != nil {
		return fmt.Errorf("stop replica %s: %w", s.replica.ID, err)
	}
	return nil
}

func replicaErr(r serving) error {
	if err := r.Err(); err != nil {
		return err
	}
	return errors.New("no reason given")
}

// reloader is the configuration of a running replica, and its changeable part.
type reloader struct {
	options *serveOptions
	draft   *draft
	level   *slog.LevelVar
	log     *slog.Logger
}

// reload reads the configuration again, applies what can change, and reports what needs a restart. With any
// fault, nothing changes.
func (r *reloader) reload() {
	next, err := r.options.collect()
	if err == nil {
		err = errorOf(next.validate())
	}
	if err != nil {
		r.log.Error("the configuration was to be read again (SIGHUP), and nothing has changed", "error", err)
		return
	}
	var restart, taken []string
	for _, k := range next.keys {
		switch {
		case next.textOf(k) == r.draft.textOf(k):
		case k.name == "log-level":
			r.level.Set(next.logLevel)
			r.draft.at[k.name], r.draft.texts[k.name] = next.at[k.name], next.textOf(k)
			taken = append(taken, k.name)
		default:
			restart = append(restart, k.name)
		}
	}
	r.log.Info("read the configuration again (SIGHUP); the files of certificates and of the keys of tokens are read by themselves when they change", "keys", taken)
	if len(restart) > 0 {
		r.log.Warn("these keys have changed and need a restart of the replica", "keys", restart)
	}
}

type tracing struct {
	endpoint string // empty: nowhere
	ratio    float64
}

// defaultTraceRatio is small enough for a busy cell. Calls that clients trace are added.
const defaultTraceRatio = 0.001

// flushTime is how long a stopped replica may send its last spans.
const flushTime = 2 * time.Second

// install makes the replica trace calls, if configured. stop sends the rest once the replica has stopped.
func (t tracing) install(ctx context.Context, replica *cell.Config, log *slog.Logger) (stop func(context.Context), err error) {
	if t.endpoint == "" {
		return func(context.Context) {}, nil
	}
	out, err := otlp.New(ctx, otlp.Config{
		Endpoint: t.endpoint, Ratio: 1, Service: "chubbyd", Logger: log,
		Attributes: map[string]string{"service.instance.id": replica.ID, "service.namespace": replica.Cell, "service.version": cell.Version()},
	})
	if err != nil {
		return nil, fmt.Errorf("trace-endpoint: %w", err)
	}
	replica.Tracing = cell.TraceConfig{Provider: out.Provider(), Ratio: t.ratio, Lost: out.Lost}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := out.Close(ctx); err != nil {
			log.WarnContext(ctx, "the last spans were not sent", "error", err)
		}
	}, nil
}

// logKept is how many bytes of the end of its log a replica keeps for a report (chubbyctl cell debug).
const logKept = 256 << 10

// tail keeps the end of what is written to it. Each write is a line.
type tail struct {
	mu    sync.Mutex // guards what follows
	lines [][]byte
	bytes int
}

// Write keeps a line, and drops the oldest ones.
func (k *tail) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines, k.bytes = append(k.lines, bytes.Clone(line)), k.bytes+len(line)
	for k.bytes > logKept {
		k.bytes -= len(k.lines[0])
		k.lines[0] = nil
		k.lines = k.lines[1:]
	}
	return len(line), nil
}

func (k *tail) text() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Join(k.lines, nil)
}

// debug returns what chubbyd adds to a replica's report.
func (d *draft) debug(said *tail) map[string]func() []byte {
	shown := d.shown()
	return map[string]func() []byte{
		"log":    func() []byte { return []byte(withoutSecrets(string(said.text()))) },
		"config": func() []byte { return shown },
	}
}

// shown returns the effective configuration for a report. Secrets are in files, which are only named, and in
// URLs, whose users and queries are omitted.
func (d *draft) shown() []byte {
	open := *d
	open.texts = make(map[string]string, len(d.texts))
	for key, text := range d.texts {
		open.texts[key] = withoutSecrets(text)
	}
	var out bytes.Buffer
	if err := open.show(&out); err != nil {
		return nil // a buffer takes everything
	}
	return out.Bytes()
}

// afterScheme is the rest of a URL after its scheme, in text, quoted or in JSON; a space or a quote ends it.
var afterScheme = regexp.MustCompile(`://[^\s"]*`)

// withoutSecrets omits possible secrets from all URLs in a text: a log also has those of rejected
// configurations, and package net/http writes one with *** for the password.
func withoutSecrets(text string) string {
	return afterScheme.ReplaceAllStringFunc(text, func(found string) string {
		whole := strings.TrimRight(found, `\`) // a quote's
		shown, quote := strings.TrimPrefix(whole, "://"), found[len(whole):]
		if at := strings.IndexAny(shown, "?#"); at >= 0 {
			hidden := shown[at:]
			if shown = shown[:at] + "?left-out"; strings.Contains(hidden, "@") { // a password may come before
				shown = "left-out"
			}
		}
		if at := strings.LastIndex(shown, "@"); at >= 0 {
			shown = "left-out" + shown[at:]
		}
		return "://" + shown + quote
	})
}
