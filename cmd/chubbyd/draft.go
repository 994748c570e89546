package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// place is the source of a value: a line and column of a file, a variable or a flag.
type place struct {
	source       string
	line, column int // 0 for a source without lines
}

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return fmt.Sprintf("%s:%d:%d", p.source, p.line, p.column)
}

type problem struct {
	at   place
	text string
}

func (f problem) String() string { return f.at.String() + ": " + f.text }

// draft collects settings from several sources, where later ones override, and all problems.
type draft struct {
	settings
	keys     []key
	main     place             // of keys that no source has set
	at       map[string]place  // of each set key
	texts    map[string]string // its value
	memberAt []place           // of each member
	problems []problem
}

func newDraft(source string) *draft {
	d := &draft{settings: defaults(), main: place{source: source}, at: make(map[string]place), texts: make(map[string]string)}
	d.keys = d.settings.keys()
	return d
}

func (d *draft) addProblem(at place, format string, args ...any) {
	d.problems = append(d.problems, problem{at, fmt.Sprintf(format, args...)})
}

func (d *draft) set(k key, text string, at place) {
	d.at[k.name], d.texts[k.name] = at, text
	if err := k.take(text); err != nil {
		d.addProblem(at, "%s: %v", k.name, err)
		return
	}
	if k.name == "members" {
		d.memberAt = slices.Repeat([]place{at}, len(d.replica.Members))
	}
}

// validate checks the settings together, after all sources, and returns all problems by place.
func (d *draft) validate() []problem {
	for _, k := range d.keys {
		if _, ok := d.at[k.name]; !ok && k.initial == "" {
			d.addProblem(d.main, "%s is missing; see 'chubbyd config example'", k.name)
		}
	}
	d.validateMembers()
	d.validateCertificates()
	d.validatePublishing()
	d.placeListen()
	if len(d.problems) == 0 { // the cell checks more at the replica's start
		var e *api.Error
		if err := d.replica.Check(); errors.As(err, &e) {
			d.addProblem(d.main, "%s", e.Message)
		}
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.at.source, b.at.source), cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	return d.problems
}

// validateCertificates requires certificates, or the setting insecure.
func (d *draft) validateCertificates() {
	named := d.replica.ClientTLS != (cell.TLSFiles{}) || d.replica.PeerTLS != (cell.TLSFiles{})
	switch {
	case !named && !d.insecure:
		d.addProblem(d.main, "tls-cert is missing, and all other certificates: 'chubbyd certs --help' says how to make them. "+
			"Or say insecure: true; then whoever reaches this replica may do anything")
	case named && d.insecure:
		d.addProblem(d.at["insecure"], "insecure: certificates are named, too; leave out one or the other")
	case named && d.replica.Bootstrap && len(d.replica.Operators) == 0:
		d.addProblem(d.at["bootstrap"], "bootstrap: nobody is named in operators; say who may change the access control lists of the new cell, end sessions and restore backups, as in operators: alice@example.org, or say everybody")
	}
}

func (d *draft) validateMembers() {
	ids := make(map[string]place)
	addresses := make(map[string]string)
	for i, m := range d.replica.Members {
		at := d.memberAt[i]
		if !api.ValidCell(m.ID) {
			d.addProblem(at, "members: %q cannot be a replica's name: use letters, digits, '-', '_' and '.', as in r1", m.ID)
		} else if earlier, ok := ids[m.ID]; ok {
			d.addProblem(at, "members: %s is there twice, first at %v", m.ID, earlier)
		} else {
			ids[m.ID] = at
		}
		for _, a := range []struct{ name, address string }{{"client", m.Client}, {"raft", m.Raft}, {"http", m.HTTP}} {
			if a.address == "" && a.name == "http" {
				continue
			}
			user := m.ID + "'s " + a.name
			if err := checkAddress(a.address); err != nil {
				d.addProblem(at, "members: %s address: %v", user, err)
			} else if earlier, ok := addresses[a.address]; ok {
				d.addProblem(at, "members: %s address %s is also %s", user, a.address, earlier)
			} else {
				addresses[a.address] = user
			}
		}
	}
	if at, ok := d.at["members"]; ok && len(d.replica.Members) == 0 && !d.hasProblemAt(at) {
		d.addProblem(at, "members: is empty; a cell has one, three or five replicas")
	}
	at, ok := d.at["id"]
	if _, known := ids[d.replica.ID]; ok && d.replica.ID != "" && len(ids) > 0 && !known {
		d.addProblem(at, "id: %s is none of the members; add it there, or correct it", d.replica.ID)
	}
}

func (d *draft) hasProblemAt(at place) bool {
	return slices.ContainsFunc(d.problems, func(f problem) bool { return f.at == at })
}

func (d *draft) validatePublishing() {
	p := d.publishing
	switch {
	case p.dns.Server != "" && p.hook != "":
		d.addProblem(d.at["dns-hook"], "dns-hook: dns-server is set, too; leave out one or the other")
	case p.dns.Server != "" && p.dns.Domain == "":
		d.addProblem(d.at["dns-server"], "dns-domain is missing: in which zone are the records?")
	case p.dns.Server == "" && p.dns.Domain != "":
		d.addProblem(d.at["dns-domain"], "dns-server is missing: which server has the zone %s?", p.dns.Domain)
	case p.dns.Server == "" && p.dns.KeyFile != "":
		d.addProblem(d.at["dns-key"], "dns-server is missing: for which server is the key?")
	}
}

// placeListen joins the host of listen with the ports of this replica's member. The host is for ports that
// others must reach, so an http port on the loopback interface stays there.
func (s *settings) placeListen() {
	for _, m := range s.replica.Members {
		if s.listenHost == "" || m.ID != s.replica.ID {
			continue
		}
		on := func(address string) string {
			if _, port, err := net.SplitHostPort(address); err == nil {
				return net.JoinHostPort(s.listenHost, port)
			}
			return ""
		}
		s.replica.Listen = cell.Addresses{Client: on(m.Client), Raft: on(m.Raft)}
		if !onLoopback(m.HTTP) {
			s.replica.Listen.HTTP = on(m.HTTP)
		}
	}
}

// onLoopback reports whether an address is written as a loopback one. A name that resolves to one does not count:
// it may be the host's own (see cell.Config.Listen).
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

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
