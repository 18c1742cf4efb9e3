package admin

import "slices"

// ProblemCodes returns all codes, the most severe first. The caller may change the result.
func ProblemCodes() []ProblemCode { return slices.Clone(problemOrder) }

// Severity returns the severity of the problems with code c.
func (c ProblemCode) Severity() Severity {
	if slices.Index(problemOrder, c) <= slices.Index(problemOrder, ProblemDisk) {
		return SeverityError
	}
	return SeverityWarn
}
