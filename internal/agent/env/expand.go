package env

import (
	"fmt"
	"strings"
)

// What the kernel starts no program with: a variable or an argument of more than MaxValue bytes, or all of them
// together of more than MaxTotal. References make more of a few bytes than a machine has memory, if nobody counts.
const (
	MaxValue = 128*1024 - 1
	MaxTotal = 6 * 1024 * 1024
)

// Expand replaces each $(NAME) in s by the value that lookup gives for NAME.
//
// A reference that lookup doesn't know stays as written. $$ stands for one $, so $$(NAME) becomes the text $(NAME).
// A $ before anything else, an unclosed $( and a $ at the end stay as written. Values are not expanded again. What
// becomes longer than MaxValue is an error.
func Expand(s string, lookup func(name string) (value string, ok bool)) (string, error) {
	dollar := strings.IndexByte(s, '$')
	if dollar < 0 {
		return s, nil
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		out.WriteString(s[:dollar])
		s = s[dollar:]
		text, length := expandOne(s, lookup)
		if out.Len()+len(text) > MaxValue {
			return "", fmt.Errorf("%.40q... becomes longer than %d bytes when its references are replaced", s, MaxValue)
		}
		out.WriteString(text)
		s = s[length:]
		if dollar = strings.IndexByte(s, '$'); dollar < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
	}
}

// expandOne reads what starts with the $ at s[0]; it returns its replacement and how many bytes of s that replaces.
func expandOne(s string, lookup func(string) (string, bool)) (text string, length int) {
	if len(s) < 2 {
		return s, len(s)
	}
	switch s[1] {
	case '$':
		return "$", 2
	case '(':
		end := strings.IndexByte(s, ')')
		if end < 0 {
			return "$(", 2
		}
		if value, ok := lookup(s[2:end]); ok {
			return value, end + 1
		}
		return s[:end+1], end + 1
	default:
		return "$", 1
	}
}

// Lookup returns a function for Expand that finds values in vars. When a name occurs twice the last one counts.
func Lookup(vars []Var) func(name string) (value string, ok bool) {
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}
