package content

import "strings"

// Planned stands for the ID of a content that is not there yet.
var Planned = strings.Repeat("new", digits/3)

// hidden stands for a value that nobody is shown.
const hidden = "(not shown)"

// Edit is a key whose value changes. Those of Secrets are not in it, nor are those that are not text.
type Edit struct {
	Ref
	Key, From, To string
}

// Edits returns the keys in which an object differs from what it was; old may be nil.
func Edits(old, fresh *Object) (out []Edit) {
	value := func(o *Object, key string) string {
		if o == nil {
			return ""
		}
		if v, is := o.Data[key]; is {
			return v
		}
		if _, is := o.Binary[key]; is {
			return hidden
		}
		return ""
	}
	for _, key := range Keys(old, fresh) {
		out = append(out, Edit{Ref: fresh.Ref, Key: key, From: value(old, key), To: value(fresh, key)})
	}
	return out
}
