package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

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
	o.addFlags(cmd.Flags())
	for _, k := range keys() {
		if len(k.words) > 0 {
			completeFlag(cmd, k.name, k.words...)
		}
	}
	if err := cmd.Flags().MarkHidden("restore-access"); err != nil { // for one start, not for the configuration
		panic(err) // addFlags has defined it
	}
	return cmd
}

func (d *draft) show(out io.Writer) error {
	lines := make([][2]string, 0, len(keys()))
	width := 0
	for _, k := range keys() {
		text, from := "", "missing"
		if at, ok := d.at[k.name]; ok {
			text, from = d.texts[k.name], at.String()
		} else if k.initial != nil {
			text, from = k.initial(defaults()), "default"
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
