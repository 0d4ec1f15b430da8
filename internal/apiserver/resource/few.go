package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// An error may repeat a list of 3 MB. Of errors with more text than longText, in bytes, only the first fewErrors are
// told, because the library copies all that it has for each that it adds.
const (
	longText  = 1 << 20
	fewErrors = 10
)

// few cuts a list of errors that is too long to be told.
func few(errs field.ErrorList) field.ErrorList {
	most, text := min(len(errs), enough.Told), 0
	for i := 0; i < most; i++ {
		errs[i] = written(errs[i])
		if text += len(errs[i].Error()); text > longText && i+1 >= fewErrors {
			most = i + 1
		}
	}
	if most == len(errs) {
		return errs
	}
	more := field.Invalid(field.NewPath("object"), len(errs), "has so many errors; those above are the first")
	return append(errs[:most:most], more)
}

// longValue is how many bytes of a value an error repeats.
const longValue = 64 << 10

// written has the value of an error as JSON, or the beginning of it. The library tells it as such, and makes it for
// each of the five texts that it asks of an error.
func written(err *field.Error) *field.Error {
	out, value := *err, reflect.ValueOf(err.BadValue)
	switch value.Kind() {
	case reflect.String:
		if value.Len() <= longValue {
			return err
		}
		out.BadValue = beginningOf(value.String())
		return &out
	case reflect.Map, reflect.Slice, reflect.Struct, reflect.Pointer:
	default:
		return err
	}
	if err.BadValue == (field.OmitValueType{}) {
		return err
	}
	text, failed := json.Marshal(err.BadValue)
	switch {
	case failed != nil:
		return err // The library tells such a value in another way.
	case len(text) > longValue:
		out.BadValue = beginning(beginningOf(string(text)))
	default:
		out.BadValue = json.RawMessage(text)
	}
	return &out
}

func beginningOf(text string) string {
	return plaintext.Cut(text, longValue, fmt.Sprintf("... (%d bytes)", len(text)))
}

// beginning is that of a value. The library tells what is no JSON as it says itself.
type beginning string

func (b beginning) String() string { return string(b) }
func (beginning) MarshalJSON() ([]byte, error) {
	return nil, errors.New("it is only the beginning of a value")
}
