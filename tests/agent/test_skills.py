"""Skills and the prompt that lists them."""

from pathlib import Path

from cuda_tui.agent.prompt import system_prompt
from cuda_tui.agent.skills import Skill, find_skills, parse_skill
from cuda_tui.workspace.data import data_folder
from cuda_tui.workspace.task import Task


def skill(folder: Path, name: str, text: str) -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_front_matter_gives_name_and_description(tmp_path: Path) -> None:
    path = skill(
        tmp_path, "a", '---\nname: a\ndescription: "Does: this\n  and that"\nother: x\n---\n# Body\nname: no\n'
    )
    assert parse_skill(path) == Skill(name="a", description="Does: this and that", path=str(path))


def test_folded_description_is_read(tmp_path: Path) -> None:
    found = parse_skill(skill(tmp_path, "a", "---\nname: a\ndescription: >\n  One\n  two\n---\n"))
    assert isinstance(found, Skill)
    assert found.description == "One two"


def test_file_without_front_matter_is_reported_and_not_fatal(tmp_path: Path) -> None:
    skill(tmp_path, "a", "# no front matter\n")
    skill(tmp_path, "b", "---\nname: b\n---\n")
    skill(tmp_path, "c", "---\nname: c\ndescription: fine\n---\n")
    skills, problems = find_skills([tmp_path])
    assert [found.name for found in skills] == ["c"]
    assert "front matter" in problems[0]
    assert "lacks a description" in problems[1]


def test_person_s_own_skill_replaces_ours(tmp_path: Path) -> None:
    skill(tmp_path / "ours", "a", "---\nname: a\ndescription: ours\n---\n")
    mine = skill(tmp_path / "mine", "a", "---\nname: a\ndescription: mine\n---\n")
    skills, _ = find_skills([tmp_path / "ours", tmp_path / "mine", tmp_path / "absent"])
    assert skills == (Skill(name="a", description="mine", path=str(mine)),)


def test_every_skill_that_travels_with_the_product_can_be_read() -> None:
    folder = data_folder("skills")
    skills, problems = find_skills([folder])
    assert problems == ()
    assert {found.name for found in skills} >= {"workspace-contract", "cpu-kernels", "cuda-optimization"}


def test_prompt_names_the_task_and_lists_the_skills() -> None:
    listed = Skill(name="cpu-kernels", description="loops", path="/x/SKILL.md")
    prompt = system_prompt(Task(name="t", class_name="Net", library_policy="strict"), skills=[listed])
    assert "class Net" in prompt
    assert "- cpu-kernels: loops (/x/SKILL.md)" in prompt
    assert "at least 90%" in prompt
    assert prompt == system_prompt(Task(name="t", class_name="Net", library_policy="strict"), skills=[listed])
