// sbom writes down what a Go program is made of, by what the linker has put into it:
// every module with its version and checksum, in CycloneDX 1.6.
//
//	go run -modfile=sbom.mod ./sbom PROGRAM VERSION >FILE
package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write tells of the program at that path.
func write(path, version string, out io.Writer) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what %s is made of: %w", path, err)
	}
	bom := cyclonedx.NewBOM()
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	name := "pkg:golang/" + info.Main.Path + "@" + version
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: "everynode", Version: version,
		PackageURL: name + "?goos=" + setting["GOOS"] + "&goarch=" + setting["GOARCH"],
	}}
	runtime := cyclonedx.Component{BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std",
		Version:    strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	components, refs := []cyclonedx.Component{runtime}, []string{runtime.BOMRef}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		c := cyclonedx.Component{BOMRef: "pkg:golang/" + m.Path + "@" + m.Version, Type: cyclonedx.ComponentTypeLibrary,
			Name: m.Path, Version: m.Version}
		c.PackageURL = c.BOMRef
		if m.Sum != "" {
			// It is a hash of hashes, as in go.sum, and not one of a file.
			c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: name, Dependencies: &refs}}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6)
}
