// Package document reads files that hold one document in YAML or JSON: manifests of static pods, and settings of the
// node.
package document

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// What is wrong with the number of documents.
var (
	ErrEmpty   = errors.New("is empty")
	ErrSeveral = errors.New("holds several documents")
)

// maxSettings bounds what is read of a file with settings, in bytes.
const maxSettings = 1 << 20

// Single returns the only document of a YAML stream.
func Single(data []byte) ([]byte, error) {
	var found []byte
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not YAML or JSON: %w", err)
		}
		if empty(document) {
			continue
		}
		if found != nil {
			return nil, ErrSeveral
		}
		found = document
	}
	if found == nil {
		return nil, ErrEmpty
	}
	return found, nil
}

// empty says whether a document has nothing but comments and white space.
func empty(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// Read returns what a file with settings holds. The error names the file.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read settings: %s is not a file", path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf(
			"%s has settings for what runs as root, and can be changed by others than its owner: chmod go-w %s", path, path,
		)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err != nil {
		return nil, fmt.Errorf("read settings in %s: %w", path, err)
	}
	if len(data) > maxSettings {
		return nil, fmt.Errorf("%s has more than %d bytes, and cannot be a file with settings", path, maxSettings)
	}
	return data, nil
}

// Decode reads the one object that data holds, which must be of one of these kinds of the scheme. Unknown fields and
// those that come twice are errors: what is misspelt would be missing silently. The error is one line.
func Decode(data []byte, types *runtime.Scheme, wanted ...schema.GroupVersionKind) (runtime.Object, error) {
	document, err := Single(data)
	if err != nil {
		return nil, err
	}
	var said struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &said); err != nil {
		return nil, fmt.Errorf("not YAML or JSON: %s", oneLine(err))
	}
	var names []string
	for _, kind := range wanted {
		if said.APIVersion == kind.GroupVersion().String() && said.Kind == kind.Kind {
			obj, _, err := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer().Decode(
				document, nil, nil,
			)
			if err != nil {
				return nil, fmt.Errorf("not a %s: %s", kind.Kind, oneLine(err))
			}
			return obj, nil
		}
		names = append(names, fmt.Sprintf("%s of %q", kind.Kind, kind.GroupVersion()))
	}
	return nil, fmt.Errorf(
		"holds the kind %q of %q, and can only hold a %s", said.Kind, said.APIVersion, strings.Join(names, " or a "),
	)
}

// oneLine is an error without the lines and the words of those who only handed it on.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.TrimPrefix(text, "strict decoding error: ")
}
