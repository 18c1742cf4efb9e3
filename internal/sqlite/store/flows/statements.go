package flows

import (
	"fmt"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlHasFlows", sqlHasFlows),
		rows.Hot("sqlFindRun", sqlFindRun),
		rows.Hot("sqlRunOf", sqlRunOf),
		rows.Hot("sqlAddRun", sqlAddRun),
		rows.Hot("sqlStepsOf", sqlStepsOf),
		rows.Hot("sqlSignalsOf", sqlSignalsOf),
		rows.Hot("sqlSaveStep", sqlSaveStep),
		rows.Hot("sqlSaveStepOfCancelled", sqlSaveStepOfCancelled),
		rows.Hot("sqlSignal", sqlSignal),
		rows.Hot("sqlCancelRun", sqlCancelRun),
		rows.Hot("sqlRestartRun", sqlRestartRun),
		rows.Hot("sqlDropStepsFrom", sqlDropStepsFrom),
		rows.Hot("sqlFailRun", sqlFailRun),
		rows.Hot("sqlEndRun", sqlEndRun),
		rows.Hot("sqlResume", sqlResume),
		rows.Hot("sqlFlowOf", sqlFlowOf),
		rows.Hot("sqlResumeWaiter", sqlResumeWaiter),
		rows.Cold("sqlListRuns", sqlListRuns),
		rows.Cold("sqlOverRuns", sqlOverRuns),
		rows.Hot("sqlDropSteps", sqlDropSteps),
		rows.Cold("sqlDropSignals", sqlDropSignals),
		rows.Hot("sqlDropRuns", sqlDropRuns),
	}
	for i, v := range invariants {
		all = append(all, rows.Cold(fmt.Sprintf("flowInvariants[%d]", i), v.query))
	}
	return all
}
