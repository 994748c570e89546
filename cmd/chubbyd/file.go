package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/cell"
)

// readFile reads the settings of a YAML file into the draft. It fails only if the file is unreadable; other
// faults are problems of the draft.
func (d *draft) readFile(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the configuration: %w; 'chubbyd config example' prints one to begin with", err)
	}
	d.readYAML(name, raw)
	return nil
}

func (d *draft) readYAML(name string, raw []byte) {
	at := func(n *yaml.Node) place { return place{name, n.Line, n.Column} }
	var document, next yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	if err := documents.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		d.addProblem(place{source: name}, "%v", err)
		return
	}
	switch err := documents.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.addProblem(place{source: name}, "%v", err)
		return
	default:
		d.addProblem(at(&next), "a second document begins here, which would not be read; a configuration is one, so remove the line with ---")
		return
	}
	if len(document.Content) == 0 {
		return // an empty file sets nothing
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		d.addProblem(at(root), "a configuration is a list of keys and values, as in 'cell: local'")
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i], root.Content[i+1]
		if line, ok := seen[name.Value]; ok {
			d.addProblem(at(name), "%s is set twice, first in line %d", name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		d.readKey(name, value, at)
	}
}

func (d *draft) readKey(name, value *yaml.Node, at func(*yaml.Node) place) {
	k, known := d.find(name.Value)
	switch {
	case !known:
		d.addProblem(at(name), "%s is not a key%s", name.Value, suggestion(name.Value, d.names()))
	case k.name == "members" && value.Kind == yaml.SequenceNode:
		d.readMembers(name, value, at)
	case value.Kind != yaml.ScalarNode:
		d.addProblem(at(value), "%s: want one value", k.name)
	case value.Tag == "!!null":
		d.addProblem(at(value), "%s: there is no value; put it in quotes if it is meant so", k.name)
	default:
		d.set(k, value.Value, at(value))
	}
}

// readMembers reads the list of members, each with the fields id, client, raft and http.
func (d *draft) readMembers(name, list *yaml.Node, at func(*yaml.Node) place) {
	d.at["members"] = at(name)
	d.replica.Members, d.memberAt = nil, nil
	for _, item := range list.Content {
		if item.Kind != yaml.MappingNode {
			d.addProblem(at(item), "members: want the fields id, client, raft and http")
			continue
		}
		var m cell.Member
		for i := 0; i+1 < len(item.Content); i += 2 {
			field, value := item.Content[i], item.Content[i+1]
			if err := setMemberField(&m, field.Value, value); err != nil {
				d.addProblem(at(field), "members: %v", err)
			}
		}
		d.replica.Members = append(d.replica.Members, m)
		d.memberAt = append(d.memberAt, at(item))
	}
	d.texts["members"] = membersText(d.replica.Members)
}

func setMemberField(m *cell.Member, field string, value *yaml.Node) error {
	fields := map[string]*string{"id": &m.ID, "client": &m.Client, "raft": &m.Raft, "http": &m.HTTP}
	target, ok := fields[field]
	switch {
	case !ok:
		return fmt.Errorf("%s is not a field of a member%s", field, suggestion(field, []string{"id", "client", "raft", "http"}))
	case value.Kind != yaml.ScalarNode:
		return fmt.Errorf("%s: want one value", field)
	case *target != "":
		return fmt.Errorf("%s is set twice", field)
	}
	*target = value.Value
	return nil
}

func (d *draft) find(name string) (key, bool) {
	i := slices.IndexFunc(d.keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return d.keys[i], true
}

func (d *draft) names() (names []string) {
	for _, k := range d.keys {
		names = append(names, k.name)
	}
	return names
}

// suggestion returns "; did you mean X?" with the known words that are near, or all of them.
func suggestion(word string, known []string) string {
	words := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, k := range known {
		words.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if near := words.SuggestionsFor(strings.ReplaceAll(word, "_", "-")); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return "; the keys are " + strings.Join(known, ", ")
}

// errorOf joins all problems in one error, a line for each.
func errorOf(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return errors.New("the configuration is not usable:\n  " + strings.Join(lines, "\n  "))
}
