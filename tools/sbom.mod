module github.com/everynode/everynode/tools

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.11.0
