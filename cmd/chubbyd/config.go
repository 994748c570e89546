package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func newConfigCommand() *cobra.Command {
	return groupOf(&cobra.Command{Use: "config", Short: "Check a configuration, show what counts, or print an example"},
		newConfigShowCommand(),
		&cobra.Command{
			Use:     "check FILE",
			Short:   "Report everything wrong with a configuration file",
			Example: "  chubbyd config check /etc/chubby/chubbyd.yaml",
			Long: `check reads a configuration file as serve would, without the environment, and
reports all that is wrong with it at once, each with its line and column, on standard
error. It exits with 1 if anything is. What is allowed and seldom meant is told as
a warning: an even number of members, members whose names only their own
machine can use, and a bucket for backups that is reached without encryption.`,
			Args: arguments(cobra.ExactArgs(1)),
			RunE: func(cmd *cobra.Command, args []string) error {
				return checkConfig(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			},
		},
		&cobra.Command{
			Use:     "example",
			Short:   "Print a complete configuration file with comments",
			Example: "  chubbyd config example >chubbyd.yaml",
			Args:    arguments(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := io.WriteString(cmd.OutOrStdout(), exampleConfig)
				return err
			},
		},
	)
}

func checkConfig(ctx context.Context, name string, out, complaints io.Writer) error {
	d := newDraft(name)
	if err := d.readFile(name); err != nil {
		return err
	}
	problems := d.validate()
	for _, p := range problems {
		fmt.Fprintln(complaints, p)
	}
	switch len(problems) {
	case 0:
		for _, warning := range warnings(ctx, d.settings, net.DefaultResolver) {
			fmt.Fprintf(complaints, "%s: warning: %s\n", name, warning)
		}
		_, err := fmt.Fprintf(out, "%s: replica %s of cell %s, %d members: ok\n",
			name, d.replica.ID, d.replica.Cell, len(d.replica.Members))
		return err
	case 1:
		return fmt.Errorf("%s has one fault", name)
	default:
		return fmt.Errorf("%s has %d faults", name, len(problems))
	}
}

// exampleConfig has every key, with its default or an example, and what it is for.
//
//go:embed example.yaml
var exampleConfig string

func newConfigShowCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "show [--config FILE]",
		Short: "Show the configuration that counts, and where each part of it comes from",
		Long: `show prints every key with the value that serve would use with the same flags in
this environment, and where that comes from: a line and column of the file, a
variable, a flag, or the default. What it prints is a configuration file itself.
It exits with 1, and says all that is wrong, if serve would not start with it. The
files of certificates are looked at, too, unless they are not there or may not be
read, as on another machine.`,
		Example: "  chubbyd config show --config /etc/chubby/chubbyd.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := o.collect()
			if err != nil {
				return err
			}
			if err := d.show(cmd.OutOrStdout()); err != nil {
				return err
			}
			if err := errorOf(d.validate()); err != nil {
				return err
			}
			err = d.replica.CheckCertificates()
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return err
		},
	}
	o.addFlags(cmd)
	if err := cmd.Flags().MarkHidden("restore-access"); err != nil { // for one start, not for the configuration
		panic(err) // addFlags has defined it
	}
	return cmd
}

func (d *draft) show(out io.Writer) error {
	lines := make([][2]string, 0, len(d.keys))
	width := 0
	for _, k := range d.keys {
		text, from := "", "missing"
		if at, ok := d.at[k.name]; ok {
			text, from = d.texts[k.name], at.String()
		} else if k.initial != "" {
			text, from = k.initial, "default"
		}
		encoded, err := yaml.Marshal(map[string]string{k.name: text})
		if err != nil {
			return err
		}
		line := strings.TrimSuffix(string(encoded), "\n")
		if from == "missing" {
			line = "# " + k.name + ":"
		}
		lines = append(lines, [2]string{line, from})
		width = max(width, min(len(line), 48))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(out, "%-*s  # %s\n", width, l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}
