package env

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MaxFile is how large a file of variables may be, in bytes.
const MaxFile = 1 << 20

// fileKey reads a variable from a file that another container of the pod wrote.
func (b *builder) fileKey(ref *corev1.FileKeySelector) (string, bool, error) {
	optional := ref.Optional != nil && *ref.Optional
	text, err := b.objects.File(b.pod, ref.VolumeName, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && optional {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	values, err := parseFile(string(text))
	if err != nil {
		return "", false, fmt.Errorf("environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	value, ok := values[ref.Key]
	if !ok && !optional {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q",
			ref.Key, ref.Path, ref.VolumeName)
	}
	return value, ok, nil
}

// parseFile reads lines NAME='value'. Values may have several lines and no quote; blank lines and lines that begin
// with # say nothing, and the last of two lines with one name counts. All else is an error, which gives the line and
// none of its words, as these may be secret. The rules are
// https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/#env-file-syntax
func parseFile(text string) (map[string]string, error) {
	values, line := map[string]string{}, 0
	for text != "" {
		line++
		var first string
		whole := text
		first, text, _ = strings.Cut(text, "\n")
		first = strings.TrimLeft(first, " \t")
		if strings.TrimSpace(first) == "" || strings.HasPrefix(first, "#") {
			continue
		}
		name, _, assigned := strings.Cut(first, "=")
		name = strings.TrimRight(name, " \t")
		if !assigned || name == "" {
			return nil, fmt.Errorf("line %d is not of the form NAME='value'", line)
		}
		_, rest, _ := strings.Cut(whole, "=")
		quoted, opens := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "'")
		value, after, closes := strings.Cut(quoted, "'")
		if !opens || !closes {
			return nil, fmt.Errorf("the value in line %d is not between single quotes", line)
		}
		after, text, _ = strings.Cut(after, "\n")
		if strings.TrimSpace(after) != "" {
			return nil, fmt.Errorf("something follows the value of line %d", line)
		}
		values[name] = value
		line += strings.Count(value, "\n")
	}
	return values, nil
}
