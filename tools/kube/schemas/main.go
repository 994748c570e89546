// Command schemas writes JSON schemas by which kubeconform checks what the chart renders: of the kinds of Kubernetes, out of the OpenAPI
// document in its source, and of those of cert-manager and of Prometheus's operator, out of their custom resource definitions. All are
// Go modules, so they come with checksums, through the Go command. An object may have no field that its schema does not name.
//
// Run it in the tools/kube directory: go run ./schemas DIRECTORY, as test/kube.sh does.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// module is where schemas come from: the files of a module, and how they are read.
type module struct {
	path, version, sum string
	files              []string
	read               func([]byte) ([]kind, error)
}

func modules() []module {
	return []module{
		{"k8s.io/kubernetes", "v1.37.2", "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=", []string{"api/openapi-spec/swagger.json"}, kindsOfSwagger},
		{"github.com/cert-manager/cert-manager", "v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=", []string{
			"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml",
		}, kindsOfDefinitions},
		{"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=", []string{
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		}, kindsOfDefinitions},
	}
}

// kind is a kind of object with its schema.
type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	schema  map[string]any
}

// file is the name that kubeconform makes of its template {{.ResourceKind}}{{.KindSuffix}}.json.
func (k kind) file() string {
	group, _, _ := strings.Cut(k.Group, ".")
	if group != "" {
		group += "-"
	}
	return strings.ToLower(k.Kind + "-" + group + k.Version + ".json")
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemas DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "schemas: %v\n", err)
		os.Exit(1)
	}
}

func write(to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, m := range modules() {
		dir, err := m.download()
		if err != nil {
			return err
		}
		for _, name := range m.files {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			kinds, err := m.read(text)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", name, m.path, err)
			}
			for _, k := range kinds {
				schema, err := json.Marshal(k.schema)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(to, k.file()), schema, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// download returns the directory of the module's files.
func (m module) download() (string, error) {
	var found struct{ Dir, Sum, Error string }
	download := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	download.Stderr = os.Stderr
	out, err := download.Output()
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil || found.Error != "" {
		return "", fmt.Errorf("download %s@%s: %w %s", m.path, m.version, errors.Join(err, jsonErr), found.Error)
	}
	if found.Sum != m.sum {
		return "", fmt.Errorf("%s@%s has the checksum %s, and %s is wanted", m.path, m.version, found.Sum, m.sum)
	}
	return found.Dir, err
}

// kindsOfSwagger reads Kubernetes's OpenAPI 2 document.
func kindsOfSwagger(text []byte) ([]kind, error) {
	var document struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	for _, definition := range document.Definitions {
		restrict(definition)
	}
	var list []kind
	for name, definition := range document.Definitions {
		raw, err := json.Marshal(definition["x-kubernetes-group-version-kind"])
		if err != nil {
			return nil, err
		}
		var of []kind
		if err := json.Unmarshal(raw, &of); err != nil || len(of) != 1 {
			continue // DeleteOptions and its like are of every group
		}
		needed := map[string]any{}
		collect(definition, document.Definitions, needed)
		needed[name] = definition
		of[0].schema = map[string]any{"$ref": "#/definitions/" + name, "definitions": needed}
		list = append(list, of[0])
	}
	return list, nil
}

// collect adds to needed what a schema refers to.
func collect(node any, all map[string]map[string]any, needed map[string]any) {
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/definitions/")
			if _, done := needed[name]; !done {
				needed[name] = all[name]
				collect(all[name], all, needed)
			}
		}
		for _, child := range node {
			collect(child, all, needed)
		}
	case []any:
		for _, child := range node {
			collect(child, all, needed)
		}
	}
}

// kindsOfDefinitions reads custom resource definitions.
func kindsOfDefinitions(text []byte) ([]kind, error) {
	var list []kind
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var d struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPI map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		err := documents.Decode(&d)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		for _, v := range d.Spec.Versions {
			restrict(v.Schema.OpenAPI)
			list = append(list, kind{d.Spec.Group, v.Name, d.Spec.Names.Kind, v.Schema.OpenAPI})
		}
	}
}

// restrict makes JSON Schema of a schema of OpenAPI, which is the same but for numbers that may be texts, and has it refuse fields
// that it does not name. What is a map of anything names none.
func restrict(node any) {
	switch node := node.(type) {
	case map[string]any:
		_, named := node["properties"].(map[string]any)
		_, more := node["additionalProperties"]
		if named && !more && node["x-kubernetes-preserve-unknown-fields"] != true {
			node["additionalProperties"] = false
		}
		if node["format"] == "int-or-string" || node["x-kubernetes-int-or-string"] == true {
			delete(node, "format")
			node["type"] = []any{"string", "integer"}
		}
		if reference, ok := node["$ref"].(string); ok && strings.HasSuffix(reference, "api.resource.Quantity") {
			delete(node, "$ref") // a text there; the server takes numbers, too
			node["type"] = []any{"string", "number"}
		}
		for _, child := range node {
			restrict(child)
		}
	case []any:
		for _, child := range node {
			restrict(child)
		}
	}
}
