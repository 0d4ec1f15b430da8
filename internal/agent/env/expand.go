package env

import "strings"

// Expand replaces each $(NAME) in s by the value that lookup gives for NAME.
//
// A reference that lookup doesn't know stays as written. $$ stands for one $, so $$(NAME) becomes the text $(NAME).
// A $ before anything else, an unclosed $( and a $ at the end stay as written. Values are not expanded again.
func Expand(s string, lookup func(name string) (value string, ok bool)) string {
	dollar := strings.IndexByte(s, '$')
	if dollar < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		out.WriteString(s[:dollar])
		s = s[dollar:]
		text, length := expandOne(s, lookup)
		out.WriteString(text)
		s = s[length:]
		if dollar = strings.IndexByte(s, '$'); dollar < 0 {
			out.WriteString(s)
			return out.String()
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
