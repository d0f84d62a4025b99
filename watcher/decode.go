package watcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
	yamlnode "sigs.k8s.io/yaml/goyaml.v3"
)

// manifestObject is an object of a kind that we read.
type manifestObject struct {
	kind   Kind
	object runtime.Object // a metav1.Object too
}

// manifestKinds are the kinds that we read: their names in manifests, and what they are decoded into.
var manifestKinds = map[string]struct {
	kind       Kind
	apiVersion string
	empty      func() runtime.Object
}{
	"EndpointSlice": {EndpointSlices, discoveryv1.SchemeGroupVersion.String(), func() runtime.Object { return new(discoveryv1.EndpointSlice) }},
	"Pod":           {Pods, corev1.SchemeGroupVersion.String(), func() runtime.Object { return new(corev1.Pod) }},
	"Endpoints":     {Endpoints, corev1.SchemeGroupVersion.String(), func() runtime.Object { return new(corev1.Endpoints) }},
}

// decodeManifests reads the objects of a file: YAML documents or JSON values, each an object or a List of them.
// Objects of kinds that we do not read are passed over. A file without content is a fault: so it looks while somebody
// writes it, and to lose every peer for that moment would be wrong. It reads all or nothing; the error begins with
// "path:line:".
func decodeManifests(path string, text []byte) ([]manifestObject, error) {
	var objects []manifestObject
	content := false
	for _, doc := range splitDocuments(text) {
		values, err := doc.values()
		if err != nil {
			return nil, fmt.Errorf("%s:%w", path, err)
		}
		for _, value := range values {
			content = content || string(value) != "null"
		}
		found, err := doc.objects(values)
		if err != nil {
			return nil, fmt.Errorf("%s:%w", path, err)
		}
		objects = append(objects, found...)
	}
	if !content {
		return nil, fmt.Errorf("%s:1: the file is empty: want objects, or a List without items", path)
	}
	return objects, nil
}

// document is one document of a file.
type document struct {
	text  []byte
	lines int // how many stand before it in the file
}

// splitDocuments cuts a file at the YAML document markers (YAML 1.2 §9.2).
func splitDocuments(text []byte) []document {
	var docs []document
	current, number := document{}, 0
	for line := range bytes.Lines(text) {
		number++
		if rest, isMarker := bytes.CutPrefix(line, []byte("---")); isMarker && len(bytes.TrimLeft(rest, " \t\r\n")) < max(len(rest), 1) {
			docs = append(docs, current)
			// What follows the marker on its line belongs to the new document; the spaces keep the columns right.
			current = document{text: append([]byte("   "), rest...), lines: number - 1}
			continue
		}
		current.text = append(current.text, line...)
	}
	return append(docs, current)
}

// objects returns the objects of the document, whose values these are. Its error begins with "line:".
func (d document) objects(values []json.RawMessage) ([]manifestObject, error) {
	var objects []manifestObject
	for _, value := range values {
		found, err := decodeObject(value)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", d.lineOf(value, err), err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// values returns the document as JSON values: many of them only where the text is JSON.
func (d document) values() ([]json.RawMessage, error) {
	trimmed := bytes.TrimLeft(d.text, " \t\r\n\ufeff")
	if len(trimmed) == 0 {
		return nil, nil
	}
	if trimmed[0] == '{' {
		if values, err := jsonValues(trimmed); err == nil {
			return values, nil
		}
		// A flow mapping of YAML also begins with a brace, and the YAML reader knows the line of a fault.
	}
	value, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.yamlError(err)
	}
	if err := d.single(); err != nil {
		return nil, err
	}
	return []json.RawMessage{value}, nil
}

// single checks that the document goes to the end of its text: the YAML reader is content with the first of several, and
// so with half of what somebody is writing.
func (d document) single() error {
	decoder := yamlnode.NewDecoder(bytes.NewReader(d.text))
	var first, next yamlnode.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return d.yamlError(err)
	}
	err := decoder.Decode(&next)
	if errors.Is(err, io.EOF) {
		return nil
	}
	line := next.Line
	if err != nil {
		line, _ = YAMLFault(err)
		line = min(line, bytes.Count(bytes.TrimRight(d.text, "\n"), []byte("\n"))+1) // the reader counts one too many
	}
	return fmt.Errorf("%d: not YAML: text after the end of the document: want --- before another", d.lines+line)
}

func jsonValues(text []byte) ([]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var values []json.RawMessage
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): *`)

// yamlError returns "line: what" of an error of the YAML reader, which counts lines from the document's start.
func (d document) yamlError(err error) error {
	line, what := YAMLFault(err)
	return fmt.Errorf("%d: not YAML: %s", d.lines+line, what)
}

// YAMLFault returns the line that an error of the YAML reader is about, 1 if it does not say, and what is wrong there.
func YAMLFault(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	what = strings.TrimPrefix(what, "yaml: ")
	line = 1
	if m := yamlLine.FindStringSubmatchIndex(what); m != nil {
		line, _ = strconv.Atoi(what[m[2]:m[3]])
		what = what[:m[0]] + what[m[1]:]
	}
	if strings.HasPrefix(what, "did not find expected") {
		line++ // the reader's parser counts from 0 where its scanner counts from 1
	}
	return line, strings.Join(strings.Fields(strings.TrimPrefix(what, "unmarshal errors:")), " ")
}

// objectError is a fault of one object; item is its place in the List that it stands in.
type objectError struct {
	item []int
	kind string
	name string
	err  error
}

func (e *objectError) Error() string {
	return strings.Join(strings.Fields(e.kind+" "+e.name), " ") + ": " + e.err.Error()
}

func (e *objectError) Unwrap() error { return e.err }

// typeMeta is what is read of every object, whatever its kind.
type typeMeta struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func decodeObject(value json.RawMessage) ([]manifestObject, error) {
	if string(bytes.TrimSpace(value)) == "null" {
		return nil, nil // a document of comments only
	}
	var meta typeMeta
	if err := json.Unmarshal(value, &meta); err != nil {
		return nil, &objectError{kind: "object", err: jsonError(err)}
	}
	if meta.Kind == "" {
		return nil, &objectError{kind: "object", name: meta.Metadata.Name, err: errors.New("no kind: want an object as kubectl prints it")}
	}
	if strings.HasSuffix(meta.Kind, "List") && meta.Metadata.Name == "" {
		return decodeList(meta.Items)
	}
	known, ok := manifestKinds[meta.Kind]
	if !ok {
		return nil, nil
	}
	fail := func(err error) ([]manifestObject, error) {
		return nil, &objectError{kind: meta.Kind, name: strings.TrimPrefix(objectKey(&meta.Metadata), "/"), err: err}
	}
	if meta.APIVersion != known.apiVersion {
		return fail(fmt.Errorf("apiVersion is %q: want %s", meta.APIVersion, known.apiVersion))
	}
	object := known.empty()
	if err := json.Unmarshal(value, object); err != nil {
		return fail(jsonError(err))
	}
	if meta.Metadata.Name == "" {
		return fail(errors.New("no metadata.name"))
	}
	if meta.Metadata.Namespace == "" {
		object.(metav1.Object).SetNamespace(metav1.NamespaceDefault)
	}
	return []manifestObject{{kind: known.kind, object: object}}, nil
}

// objectKey returns namespace and name for messages.
func objectKey(m metav1.Object) string { return m.GetNamespace() + "/" + m.GetName() }

func decodeList(items []json.RawMessage) ([]manifestObject, error) {
	var objects []manifestObject
	for i, item := range items {
		found, err := decodeObject(item)
		if fault, ok := errors.AsType[*objectError](err); ok {
			fault.item = append([]int{i}, fault.item...)
			return nil, fault
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// jsonError says a fault of types in the words of the object and not of Go.
func jsonError(err error) error {
	if fault, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s: want %s", fault.Field, fault.Value, fault.Type.Kind())
	}
	return err
}

// lineOf returns the line at which the object at fault begins: its own in a List.
func (d document) lineOf(value json.RawMessage, err error) int {
	text, lines := d.text, d.lines
	if i := bytes.Index(text, value); i >= 0 { // one of several JSON values
		lines += bytes.Count(text[:i], []byte("\n"))
		text = text[i:]
	}
	var root yamlnode.Node
	if yamlnode.NewDecoder(bytes.NewReader(text)).Decode(&root) != nil || len(root.Content) == 0 {
		return lines + 1
	}
	node := root.Content[0]
	if fault, ok := errors.AsType[*objectError](err); ok {
		for _, i := range fault.item {
			if node = itemOf(node, i); node == nil {
				return lines + 1
			}
		}
	}
	return lines + node.Line
}

func itemOf(list *yamlnode.Node, i int) *yamlnode.Node {
	for k := 0; k+1 < len(list.Content); k += 2 {
		if list.Content[k].Value == "items" && i < len(list.Content[k+1].Content) {
			return list.Content[k+1].Content[i]
		}
	}
	return nil
}
