// Command unpack takes out of rendered manifests, on standard input, what the pods of the StatefulSet would have, so that its processes can
// be run without a cluster: the files of the ConfigMap are written into DIRECTORY/config, the arguments of the container, one a line, into
// DIRECTORY/args, and its variables, NAME=VALUE, into DIRECTORY/env. The name of the pod stays $(POD_NAME).
//
// Run it in the tools/kube directory: go run ./unpack DIRECTORY, as test/kubecell.sh does.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// object is what is looked at of a manifest.
type object struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Command, Args []string
					Env           []struct{ Name, Value string }
				}
			}
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: unpack DIRECTORY <MANIFESTS")
		os.Exit(2)
	}
	if err := unpack(os.Args[1], os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "unpack: %v\n", err)
		os.Exit(1)
	}
}

func unpack(to string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Join(to, "config"), 0o755); err != nil {
		return err
	}
	for documents := yaml.NewDecoder(from); ; {
		var o object
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch o.Kind {
		case "ConfigMap":
			for name, text := range o.Data {
				err = errors.Join(err, os.WriteFile(filepath.Join(to, "config", name), []byte(text), 0o644))
			}
		case "StatefulSet":
			c := o.Spec.Template.Spec.Containers[0]
			var env []string
			for _, v := range c.Env {
				if v.Value != "" {
					env = append(env, v.Name+"="+v.Value)
				}
			}
			err = errors.Join(writeLines(filepath.Join(to, "args"), append(c.Command, c.Args...)), writeLines(filepath.Join(to, "env"), env))
		}
		if err != nil {
			return err
		}
	}
}

func writeLines(name string, lines []string) error {
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
